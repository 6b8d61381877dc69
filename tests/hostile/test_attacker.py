"""An attacker on the network of the live page: requests as bytes, damaged folders, and a real browser."""

import contextlib
import json
import random
import shutil
import socket
import struct

import pytest

import lacking
from basinscope.report.catalogue import Catalogue
from browser import Browser
from hostile.files import header, state, training
from hostile.stores import every, forged, manifest, put
from hostile_names import NAMES
from live_pages import served, store

TOKEN = "a-token-of-some-length/+="
SECRETS = (b"root:", b'"schema"', b"Traceback", TOKEN.encode())


def spoken(port, request, timeout=20, ends=True):
    """What is answered to these bytes, after which nothing more comes where they end."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(request)
        if ends:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(OSError):
            while chunk := connection.recv(1 << 16):
                answer += chunk
        return answer


def asked(port, path="/", host="localhost", more="", method="GET"):
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n"
    answer = spoken(port, request.encode("latin-1"), ends=False)
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0, answer


HOSTS = [
    "evil.example", "[::1]evil", "localhost:80@evil", "localhost.evil.example", "evil.example:80", "127.0.0.1.evil", "", "[::1", "::1",
    "localhost,evil", "localhost evil", "LOCALHOST.", "127.1", "0.0.0.0", "0x7f.1", "2130706433", "localhost:99999999", "localhost:a", "localhost#", "localhost/",
]  # fmt: skip

PATHS = [
    f"{prefix}{climb}{target}"
    for prefix in ("/", "/report/", "/style.css/")
    for climb in ("../../../../", "..%2f..%2f..%2f", "%2e%2e/%2e%2e/", "..%5c..%5c", "....//....//", "%252e%252e%252f", "%c0%ae%c0%ae/", "..%00/", "//", "./")
    for target in ("etc/passwd", "store.json")
]  # fmt: skip


def test_it_answers_under_its_own_names_alone(tmp_path):
    with served(tmp_path) as port:
        answers = {host: asked(port, host=host)[0] for host in HOSTS}
        assert {host: status for host, status in answers.items() if status not in (400, 421)} == {}
        assert asked(port, more="Host: evil.example\r\n")[0] in (400, 421)
        assert [asked(port, host=host)[0] for host in ("localhost", "LocalHost:8000", "127.0.0.1", "[::1]:1")] == [
            200
        ] * 4


def test_no_spelling_of_a_path_leads_to_a_file(tmp_path):
    store(tmp_path)
    with served(tmp_path) as port:
        for path in PATHS:
            status, answer = asked(port, path)
            assert status in (400, 404), path
            assert not any(secret in answer for secret in SECRETS), path


def test_no_one_gets_in_without_the_token(tmp_path):
    wrong = [
        "", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n", f"Authorization: Basic {TOKEN}\r\n", f"Authorization: Bearer {TOKEN}x\r\n",
        f"Authorization: Bearer {TOKEN[:-1]}\r\n", f"Authorization: Bearer x\r\nAuthorization: Bearer {TOKEN}\r\n", f"Cookie: basinscope-session={TOKEN}\r\n",
        "Cookie: basinscope-session=\r\n", "Cookie: \r\n", 'Cookie: basinscope-session="\r\n', "Cookie: a=b; basinscope-session=\xff\xfe\r\n", f"X-Token: {TOKEN}\r\n",
        "X-Forwarded-For: 127.0.0.1\r\n", "Authorization: Bearer \xff\r\n",
    ]  # fmt: skip
    with served(tmp_path, token=TOKEN) as port:
        for more in wrong:
            for path in (
                "/",
                "/events",
                "/compare",
                "/style.css",
                "/enter",
                f"/?token={'a' * 20}",
                "/enter.js/../events",
            ):
                status, answer = asked(port, path, host="anything.example", more=more)
                assert status == 401, (path, more, answer[:200])
                assert TOKEN.encode() not in answer
        assert asked(port, "/", more=f"Authorization: Bearer {TOKEN}\r\n")[0] == 200


REQUESTS = [
    b"", b"\r\n", b"\0" * 100, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 100_000,
    b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /events HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"GET /compare?" + b"run=x&" * 1_300 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /compare?run=%00%ff%fe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"GET /report/%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", b"GET / HTTP/1.1\nHost: localhost\n\n", b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
]  # fmt: skip


def test_requests_that_are_none_do_no_harm(tmp_path, seed):
    """The given ones, and 150 made of a sound one by changing bytes."""
    rng = random.Random(seed)
    sound = b"GET /compare?run=abc HTTP/1.1\r\nHost: localhost\r\nCookie: a=b\r\nConnection: close\r\n\r\n"
    changed = []
    for _ in range(150):
        text = bytearray(sound)
        for _ in range(rng.randint(1, 8)):
            text[rng.randrange(len(text) - 4)] = rng.randrange(256)
        changed.append(bytes(text))
    with served(tmp_path) as port:
        for request in (*REQUESTS, *changed):
            if b"/events" in request:
                continue  # has no end of its own
            answer = spoken(port, request)
            assert b" 500 " not in answer[:20], request[:200]
            assert not any(secret in answer for secret in SECRETS), request[:200]
        assert asked(port)[0] == 200


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


def _training(text):
    def put_it(place):
        (place / "bad").mkdir()
        (place / "bad" / "checkpoint.safetensors").write_bytes(text)

    return put_it


def _report(text):
    return put("bad/report.json", text)


def _facts(report, **changes):
    return lambda place: put("bad/report.json", json.dumps({**json.loads(report.to_json()), **changes}))(place)


DAMAGE = {
    "made at NaN": lambda r: _facts(r, made=float("nan")), "made at 1e400": lambda r: _report(r.to_json().replace('"made":', '"made": 1e400, "m":')), "made at a huge whole number": lambda r: _facts(r, made=10**400),
    "a title that is a list": lambda r: _facts(r, title=["a"]), "points of numbers": lambda r: _facts(r, points=[5]), "points by name": lambda r: _facts(r, points={"a": 1}), "a title that is half a character": lambda r: _facts(r, title="\ud800"),
    "100,000 brackets": lambda r: _report("[" * 100_000), "no UTF-8": lambda r: _report(b'{"format": 1, "title": "\xff\xfe"}'), "a number of 5,000 digits": lambda r: _report("1" + "0" * 5_000), "a folder": lambda r: lambda p: (p / "bad" / "report.json").mkdir(parents=True),
    "rows of numbers": lambda r: _training(training(state(rows=[1, 2], over=None, clock=[1], settings={"$dict": []}))), "rows of text": lambda r: _training(training(state(rows=["ab"], over=None, clock=[1], settings={"$dict": []}))),
    "over at NaN": lambda r: _training(training(state(rows=[], over=[float("nan"), "x"], clock=[1], settings={"$dict": []}))), "over is a number": lambda r: _training(training(state(rows=[], over=7, clock=[1], settings={"$dict": []}))),
    "over too short": lambda r: _training(training(state(rows=[], over=["one"], clock=[1], settings={"$dict": []}))), "a state nested 50,000 deep": lambda r: _training(training("[" * 50_000)), "an empty header": lambda r: _training(header({})),
    "a header of 2**62": lambda r: _training(struct.pack("<Q", 2**62)), "a fifo": lambda r: lambda p: ((p / "bad").mkdir(), __import__("os").mkfifo(p / "bad" / "report.json")), "a fifo of a training": lambda r: lambda p: ((p / "bad").mkdir(), __import__("os").mkfifo(p / "bad" / "checkpoint.safetensors")),
    "a link out": lambda r: lambda p: ((p / "bad").mkdir(), (p / "bad" / "report.json").symlink_to("/etc/passwd")), "a link to itself": lambda r: lambda p: (p / "loop").symlink_to(p), "a link to a device": lambda r: lambda p: ((p / "bad").mkdir(), (p / "bad" / "checkpoint.safetensors").symlink_to("/dev/zero")),
    "a record of a file outside": lambda r: lambda p: forged(files=[{"name": "../../../etc/passwd", "sha256": "0"}])(p / "study"), "a record of a list": lambda r: lambda p: forged(config=[1])(p / "study"), "every record garbage": lambda r: lambda p: every("results", b"\xff")(p / "study"),
    "every manifest garbage": lambda r: lambda p: every("studies", b"[1")(p / "study"), "a manifest of numbers": lambda r: lambda p: put("studies/z/x.json", manifest(jobs=[1]))(p / "study"), "a manifest with a NaN label": lambda r: lambda p: put("studies/z/x.json", manifest(jobs=[["a", float("nan")]]))(p / "study"),
    "a failure that is a list": lambda r: lambda p: put("failures/x.json", "[1]")(p / "study"), "a heartbeat of nonsense": lambda r: lambda p: put("driver.json", '{"renewed": 1e400, "process": "x"}')(p / "study"), "store.json of garbage": lambda r: lambda p: put("store.json", "garbage")(p / "study"),
    "60 folders deep": lambda r: lambda p: p.joinpath(*["d"] * 60).mkdir(parents=True), "a folder of line breaks": lambda r: lambda p: put("a\nb\x1b[31m/report.json", r.to_json())(p),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_hides_no_sound_run(tmp_path, report, damage):
    report.save(tmp_path / "good")
    store(tmp_path / "study", seeds=1)
    DAMAGE[damage](report)(tmp_path)
    catalogue = Catalogue(tmp_path)
    catalogue.scan()
    shutil.copytree(tmp_path / "good", tmp_path / "later")
    catalogue.scan()
    version, rows, gone = catalogue.changed(0)
    text = json.dumps([version, rows, gone, catalogue.studies], allow_nan=False)
    assert {"good", "later"} <= {row["name"] for row in rows if row["kind"] == "report"}
    assert "root:" not in text
    for row in rows:
        catalogue.detail(row["id"])


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
