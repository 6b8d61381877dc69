"""Visits to the live page that no browser makes: foreign names, paths, tokens, bytes that are no requests, and folders
with damaged files beside sound runs. Each kind serves the page once, and yields what became of every visit."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from basinscope.report.catalogue import Catalogue
from hostile.files import header, state, training
from hostile.mutations import report
from hostile.outcomes import CLEAR, CRASH, HANG, RIGHT, WRONG, Outcome
from hostile.stores import every, forged, manifest, put
from live_pages import served, store

TOKEN = "a-token-of-some-length/+="
SECRETS = (b"root:", b'"schema"', b"Traceback", TOKEN.encode())
Visits = Iterator[tuple[str, Outcome]]


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


LEFT_OUT = (
    "", "Authorization: Bearer\r\n", "Authorization: Bearer \r\n", f"Authorization: Basic {TOKEN}\r\n", f"Authorization: Bearer {TOKEN}x\r\n",
    f"Authorization: Bearer {TOKEN[:-1]}\r\n", f"Authorization: Bearer x\r\nAuthorization: Bearer {TOKEN}\r\n", f"Cookie: basinscope-session={TOKEN}\r\n",
    "Cookie: basinscope-session=\r\n", "Cookie: \r\n", 'Cookie: basinscope-session="\r\n', "Cookie: a=b; basinscope-session=\xff\xfe\r\n", f"X-Token: {TOKEN}\r\n",
    "X-Forwarded-For: 127.0.0.1\r\n", "Authorization: Bearer \xff\r\n",
)  # fmt: skip
ENTRANCES = ("/", "/events", "/compare", "/style.css", "/enter", f"/?token={'a' * 20}", "/enter.js/../events")

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


def refused(status: int, answer: bytes, wanted: tuple[int, ...]) -> Outcome:
    """A visit that must be turned away with one of these statuses, and learn nothing."""
    if any(secret in answer for secret in SECRETS):
        return Outcome(WRONG, f"it told too much: {answer[:200]!r}")
    return Outcome(CLEAR if status in wanted else WRONG, f"status {status}")


def hosts(folder: Path, seed: int) -> Visits:
    with served(folder) as port:
        for host in HOSTS:
            yield f"Host: {host}", refused(*asked(port, host=host), (400, 421))
        yield "two hosts", refused(*asked(port, more="Host: evil.example\r\n"), (400, 421))
        for host in ("localhost", "LocalHost:8000", "127.0.0.1", "[::1]:1"):
            yield f"Host: {host}", Outcome(RIGHT if asked(port, host=host)[0] == 200 else WRONG)


def paths(folder: Path, seed: int) -> Visits:
    store(folder)
    with served(folder) as port:
        for path in PATHS:
            yield path, refused(*asked(port, path), (400, 404))


def tokens(folder: Path, seed: int) -> Visits:
    with served(folder, token=TOKEN) as port:
        for more in LEFT_OUT:
            for path in ENTRANCES:
                yield f"{path} with {more!r}", refused(*asked(port, path, "anything.example", more), (401,))
        status, _ = asked(port, "/", more=f"Authorization: Bearer {TOKEN}\r\n")
        yield "the token itself", Outcome(RIGHT if status == 200 else WRONG, f"status {status}")


def requests(folder: Path, seed: int) -> Visits:
    """The given ones, and 150 made of a sound one by changing bytes."""
    rng = random.Random(seed)
    sound = b"GET /compare?run=abc HTTP/1.1\r\nHost: localhost\r\nCookie: a=b\r\nConnection: close\r\n\r\n"
    changed = []
    for _ in range(150):
        text = bytearray(sound)
        for _ in range(rng.randint(1, 8)):
            text[rng.randrange(len(text) - 4)] = rng.randrange(256)
        changed.append(bytes(text))
    with served(folder) as port:
        for request in (*REQUESTS, *changed):
            if b"/events" in request:
                continue  # has no end of its own
            yield repr(request[:60]), _answered(port, request)


def _answered(port: int, request: bytes) -> Outcome:
    """Bytes that may be a request: closed, refused or answered, and the next visitor is served."""
    try:
        answer = spoken(port, request)
    except TimeoutError:
        return Outcome(HANG)
    if b" 500 " in answer[:20] or asked(port)[0] != 200:
        return Outcome(CRASH, repr(answer[:200]))
    if any(secret in answer for secret in SECRETS):
        return Outcome(WRONG, f"it told too much: {answer[:200]!r}")
    return Outcome(RIGHT if b" 200 " in answer[:20] else CLEAR)


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


def damaged(folder: Path, seed: int) -> Visits:
    """A damaged file at a time beside a sound run and a later one, which must both be shown."""
    for name in DAMAGE:
        place = folder / name.replace(" ", "-").replace(",", "")
        place.mkdir()
        yield name, shown(place, DAMAGE[name])


def shown(folder: Path, damage: Callable[[Any], Callable[[Path], Any]]) -> Outcome:
    """Whether sound runs are shown though a file beside them is damaged."""
    report().save(folder / "good")
    store(folder / "study", seeds=1)
    damage(report())(folder)
    catalogue = Catalogue(folder)
    catalogue.scan()
    shutil.copytree(folder / "good", folder / "later")
    catalogue.scan()
    version, rows, gone = catalogue.changed(0)
    text = json.dumps([version, rows, gone, catalogue.studies], allow_nan=False)
    for row in rows:
        catalogue.detail(row["id"])
    missing = {"good", "later"} - {row["name"] for row in rows if row["kind"] == "report"}
    if missing or "root:" in text:
        return Outcome(WRONG, f"not shown: {missing}" if missing else "it told too much")
    return Outcome(RIGHT)


VISITS: dict[str, Callable[[Path, int], Visits]] = {
    "host names": hosts, "paths": paths, "tokens": tokens, "requests": requests, "damaged folders": damaged,
}  # fmt: skip
"""Kinds of visits by what they try; each takes an empty folder and a seed."""
