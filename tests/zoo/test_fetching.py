"""Downloads against a server on this machine that breaks off, forgets ranges or sends the wrong bytes."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from basinscope.cli import app
from basinscope.errors import BasinscopeError, InputError
from basinscope.zoo import data
from basinscope.zoo.data import catalogue
from basinscope.zoo.data.catalogue import File, Source

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Serves CONTENT; `plan` says what to do with each request in turn, then everything goes well."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan, self.asked, self.content = [], [], CONTENT

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"

    def handle_error(self, request, client_address):
        pass  # a client that hung up is part of the game


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        todo = server.plan.pop(0) if server.plan else "all"
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        if todo == "404":
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and todo != "no ranges" else 0
        if start >= len(server.content):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if todo == "half" else body)
        if todo == "half":
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)


@pytest.fixture
def server():
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=[0.01], daemon=True)  # looks so often for its end
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def folder(server, tmp_path, monkeypatch):
    file = File("file.bin", hashlib.md5(CONTENT).hexdigest(), (server.url,), len(CONTENT) / 1e6)
    monkeypatch.setitem(catalogue.SOURCES, "toy", Source("toy", "a toy", (file,)))
    monkeypatch.setenv("BASINSCOPE_DATA", str(tmp_path))
    return tmp_path / "toy"


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once(server, folder):
    (path,) = data.fetch("toy", progress=False)
    assert path.read_bytes() == CONTENT
    data.fetch("toy", progress=False)
    assert server.asked == [None]
    assert listing(folder) == ["file.bin"]


def test_a_broken_download_leaves_a_part_and_goes_on_from_there(server, folder):
    server.plan = ["half", "half"]
    for _ in range(2):
        with pytest.raises(BasinscopeError, match=r"file.bin could not be fetched .* run the command again"):
            data.fetch("toy", progress=False)
        assert listing(folder) == ["file.bin.part"]
    data.fetch("toy", progress=False)
    assert server.asked[0] is None
    assert server.asked[1] == f"bytes={len(CONTENT) // 2}-"
    assert server.asked[2] == f"bytes={len(CONTENT) * 3 // 4}-"
    assert (folder / "file.bin").read_bytes() == CONTENT
    assert listing(folder) == ["file.bin"]


def test_a_server_without_ranges_sends_the_whole_again(server, folder):
    server.plan = ["half", "no ranges"]
    with pytest.raises(BasinscopeError):
        data.fetch("toy", progress=False)
    data.fetch("toy", progress=False)
    assert (folder / "file.bin").read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away(server, folder):
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(b"something else" * 100)
    data.fetch("toy", progress=False)
    assert (folder / "file.bin").read_bytes() == CONTENT
    assert server.asked == ["bytes=1400-", None]


def test_a_part_that_is_complete_or_too_long(server, folder):
    folder.mkdir()
    for content in (CONTENT, CONTENT + b"too long"):
        (folder / "file.bin").unlink(missing_ok=True)
        (folder / "file.bin.part").write_bytes(content)
        data.fetch("toy", progress=False)
        assert (folder / "file.bin").read_bytes() == CONTENT
        assert listing(folder) == ["file.bin"]


def test_wrong_bytes_never_take_the_place_of_the_file(server, folder):
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(BasinscopeError, match="could not be fetched"):
        data.fetch("toy", progress=False)
    assert listing(folder) == []


def test_a_damaged_file_is_replaced(server, folder):
    folder.mkdir()
    (folder / "file.bin").write_bytes(CONTENT[:10])
    data.fetch("toy", progress=False)
    assert (folder / "file.bin").read_bytes() == CONTENT


def test_the_second_place_is_tried(server, folder, monkeypatch):
    server.plan = ["404"]
    file = catalogue.SOURCES["toy"].files[0]
    both = File(file.name, file.md5, (server.url, server.url + "?mirror"), file.megabytes)
    monkeypatch.setitem(catalogue.SOURCES, "toy", Source("toy", "a toy", (both,)))
    data.fetch("toy", progress=False)
    assert (folder / "file.bin").read_bytes() == CONTENT


def test_no_server(folder, server, monkeypatch):
    file = catalogue.SOURCES["toy"].files[0]
    nowhere = File(file.name, file.md5, ("http://127.0.0.1:9/file.bin",), file.megabytes)
    monkeypatch.setitem(catalogue.SOURCES, "toy", Source("toy", "a toy", (nowhere,)))
    with pytest.raises(BasinscopeError, match=r"file.bin could not be fetched .* put the file into"):
        data.fetch("toy", progress=False)


def test_a_folder_that_cannot_be_made(server, folder, tmp_path):
    (tmp_path / "toy").write_text("in the way")
    with pytest.raises(BasinscopeError, match="cannot be written to"):
        data.fetch("toy", progress=False)


def test_the_command(server, folder):
    ran = CliRunner().invoke(app, ["data", "fetch", "toy"])
    assert ran.exit_code == 0
    assert ran.output.strip() == str(folder / "file.bin")
    ran = CliRunner().invoke(app, ["data", "fetch", "nothing"])
    assert ran.exit_code == 2
    assert "unknown data set 'nothing'" in ran.output
    ran = CliRunner().invoke(app, ["data", "list"])
    assert ran.exit_code == 0
    assert [line.split()[-1] for line in ran.output.splitlines() if line.startswith(("toy", "mnist"))] == ["no", "yes"]


def test_unknown_name():
    with pytest.raises(InputError, match="unknown data set 'digit'"):
        data.fetch("digit")
