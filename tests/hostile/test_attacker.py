"""An attacker on the network of the live page: requests as bytes, damaged folders, and a real browser."""

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import lacking
from basinscope.report import listening, server
from browser import Browser
from hostile.outcomes import GOOD, RIGHT, Outcome
from hostile.visits import DAMAGE, TOKEN, VISITS, asked, shown
from hostile_names import NAMES
from live_pages import served, store


@pytest.mark.parametrize("kind", [kind for kind in VISITS if kind != "damaged folders"])
def test_no_visit_gets_further_than_it_may(tmp_path, seed, kind):
    wrong = {name: outcome for name, outcome in VISITS[kind](tmp_path, seed) if outcome.kind not in GOOD}
    assert wrong == {}


def test_every_answer_carries_the_headers_that_confine_it(tmp_path):
    with served(tmp_path) as port:
        for path in ("/", "/compare", "/live.js", "/nothing"):
            answer = asked(port, path)[1].split(b"\r\n\r\n")[0].lower()
            for wanted in (
                b"default-src 'none'",
                b"frame-ancestors 'none'",
                b"nosniff",
                b"no-referrer",
                b"no-store",
                b"same-origin",
            ):
                assert wanted in answer, (path, wanted)
            assert b"server:" not in answer
            assert b"access-control" not in answer


def test_more_visitors_than_it_takes_are_turned_away_and_it_goes_on(tmp_path):
    with served(tmp_path) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        assert asked(port)[0] == 503
        for connection in idle:
            connection.close()
        for _ in range(100):
            if asked(port)[0] == 200:
                break
        else:
            pytest.fail("it did not come back")


def test_who_sends_a_request_slowly_is_left_alone_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(listening, "_PATIENCE", 0.2)
    with served(tmp_path) as port:
        for begun in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(begun)
                assert connection.recv(1) == b""  # closed by the other side
        assert asked(port)[0] == 200


def test_only_so_many_are_told_of_changes_and_others_are_turned_away(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_MOST_STREAMS", 3)
    request = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served(tmp_path) as port, contextlib.ExitStack() as visitors:
        for _ in range(3):
            connection = visitors.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            connection.sendall(request)
            assert b" 200 " in connection.recv(1000)
        assert asked(port, "/events")[0] == 503
        assert asked(port)[0] == 200


def test_a_request_may_have_no_body(tmp_path):
    with served(tmp_path) as port:
        for more in ("Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 99999999999\r\n"):
            assert asked(port, more=more)[0] in (400, 413), more
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert asked(port, method=method)[0] == 405, method


def test_the_token_is_in_no_log_and_in_no_answer(tmp_path, capfd):
    with served(tmp_path, token=TOKEN) as port:
        for path in (f"/?token={TOKEN}", f"/{TOKEN}", f"/report/{TOKEN}", "/"):
            for more in ("", f"Authorization: Bearer {TOKEN}\r\n", f"Referer: http://localhost/#{TOKEN}\r\n"):
                assert TOKEN.encode() not in asked(port, path, more=more)[1]
    told = capfd.readouterr()
    assert TOKEN not in told.out + told.err


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_hides_no_sound_run(tmp_path, damage):
    assert shown(tmp_path, DAMAGE[damage]) == Outcome(RIGHT)


@pytest.mark.slow
@lacking.CHROMIUM.mark
def test_a_browser_keeps_the_token_to_itself_and_runs_no_hostile_name(tmp_path):
    store(tmp_path / "store", NAMES, seeds=1)
    with served(tmp_path, token=TOKEN) as port:
        browser = Browser()
        try:
            page = browser.page()
            page.open(f"http://127.0.0.1:{port}/#{TOKEN.replace('/', '%2F').replace('+', '%2B').replace('=', '%3D')}")
            page.wait("document.querySelectorAll('tr').length > 3")
            assert page.run("location.href") == f"http://127.0.0.1:{port}/"
            assert page.run("document.cookie") == ""
            assert page.run("document.referrer") == ""
            assert not any("token" in url for url in page.requests)
            assert page.run("window.broken") is None
            for attempt in ("eval('1')", "new Function('1')()", "fetch('http://127.0.0.1:9/').then(() => 1)"):
                script = f"(async () => {{ try {{ await {attempt}; return 'ran' }} catch {{ return 'refused' }} }})()"
                told = page.call(
                    "Runtime.evaluate",
                    expression=script,
                    returnByValue=True,
                    awaitPromise=True,
                    allowUnsafeEvalBlockedByCSP=False,
                )
                assert told["result"]["value"] == "refused", attempt
            for tag, rest in (
                ("script", "textContent = 'window.broken = 1'"),
                ("iframe", "src = 'http://127.0.0.1:9/'"),
                ("img", "src = 'http://127.0.0.1:9/x.png'"),
            ):
                page.run(
                    f"(() => {{ const e = document.createElement('{tag}'); e.{rest}; document.body.append(e); }})()"
                )
            assert page.run("window.broken") is None
        finally:
            browser.close()


class _Elsewhere(BaseHTTPRequestHandler):
    """A page of somebody else, which says nothing and lets everything."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *arguments):
        pass


@pytest.mark.slow
@lacking.CHROMIUM.mark
def test_a_page_elsewhere_reads_nothing_through_the_browser_of_a_visitor(tmp_path):
    store(tmp_path / "store", seeds=1)
    elsewhere = ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere)
    threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
    attempts = {
        "to read it": "fetch('{page}').then(answer => answer.text())",
        "to read it as the visitor": "fetch('{page}', {{credentials: 'include'}}).then(answer => answer.text())",
        "to read what is told of changes": "fetch('{page}events', {{credentials: 'include'}}).then(a => a.text())",
        "to change something": "fetch('{page}', {{method: 'POST', body: 'x'}}).then(answer => answer.text())",
        "to run its script": "new Promise((yes, no) => {{ const s = document.createElement('script'); "
        "s.src = '{page}live.js'; s.onload = yes; s.onerror = no; document.body.append(s); }})",
        "to read a frame of it": "new Promise((yes, no) => {{ const f = document.createElement('iframe'); f.src = '{page}'; "
        "f.onload = () => {{ try {{ yes(f.contentWindow.document.body.innerHTML) }} catch (e) {{ no(e) }} }}; "
        "document.body.append(f); }})",
        "to listen": "new Promise((yes, no) => {{ const e = new EventSource('{page}events'); e.onmessage = yes; "
        "e.addEventListener('runs', yes); e.onerror = no; }})",
        "to reach it by another name": "fetch('{page}'.replace('127.0.0.1', 'evil.localhost')).then(a => a.text())",
    }
    with served(tmp_path) as port:
        browser = Browser()
        try:
            page = browser.page()
            page.open(f"http://127.0.0.1:{elsewhere.server_port}/")
            for what, script in attempts.items():
                tried = script.format(page=f"http://127.0.0.1:{port}/")
                told = page.run(
                    f"(async () => {{ try {{ return 'read: ' + await {tried}; }} catch {{ return 'refused'; }} }})()"
                )
                assert told == "refused", what
        finally:
            browser.close()
            elsewhere.shutdown()
            elsewhere.server_close()
