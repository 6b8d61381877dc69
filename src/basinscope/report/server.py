"""The live page: a small web application over a catalogue of runs. It reads, and never writes."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any

from jinja2 import UndefinedError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import BasinscopeError
from .catalogue import Catalogue
from .compare import comparison, run_page
from .pages import asset, report_page, templates

LOCAL = ("127.0.0.1", "localhost", "::1")
COOKIE = "basinscope-session"
MOST = 6  # runs side by side
_CHUNK = 400  # rows in one message
_EVERY = 1.0  # seconds between looks at the folder
_MOST_QUERY = 8_000  # characters of an address behind its question mark
_MOST_STREAMS = 100  # visitors who are told of changes at the same time
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def application(
    catalogue: Catalogue,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = LOCAL,
    ended: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The live page of a catalogue.

    Args:
        catalogue: the runs.
        token: what a visitor must show; nothing unless given.
        hosts: names under which it answers, when there is no token: a page elsewhere cannot reach it under its own.
        ended: whether the server is about to stop: streams to visitors, which have no end of their own, then end.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(_watch(catalogue))
        try:
            yield
        finally:
            watching.cancel()

    async def page(request: Request) -> Response:
        return HTMLResponse(templates().get_template("live.html").render(name=catalogue.root.name))

    async def compare(request: Request) -> Response:
        identities = request.query_params.getlist("run")[:MOST]
        return await _shown(comparison, catalogue, identities)

    async def run(request: Request) -> Response:
        shown = await _shown(run_page, catalogue, request.path_params["identity"])
        return shown if shown.body else PlainTextResponse("there is no such run", 404)

    async def report(request: Request) -> Response:
        detail = await run_in_threadpool(catalogue.detail, request.path_params["identity"])
        if detail.report is None:
            return PlainTextResponse("there is no such report", 404)
        answer = await _shown(report_page, detail.report)
        # A report carries its style inside and no script; this page of the server alone may have that.
        answer.headers["content-security-policy"] = (
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        return answer

    streams: set[object] = set()

    async def events(request: Request) -> Response:
        if len(streams) >= _MOST_STREAMS:
            return PlainTextResponse(f"{_MOST_STREAMS} visitors are looking already: try again later", 503)
        return StreamingResponse(_counted(streams, _changes(catalogue, request, ended)), media_type="text/event-stream")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/compare", compare),
            Route("/run/{identity}", run),
            Route("/report/{identity}", report),
            Route("/events", events),
            Route("/style.css", _file("style.css", "text/css")),
            Route("/live.css", _file("live.css", "text/css")),
            Route("/live.js", _file("live.js", "text/javascript")),
            Route("/scatter.js", _file("scatter.js", "text/javascript")),
            Route("/enter.js", _file("enter.js", "text/javascript")),
        ],
        lifespan=lifespan,
    )
    return _Guard(app, token, hosts)


async def _shown(render: Callable[..., str], *arguments: Any) -> Response:
    """A rendered page, or a word on a file that somebody else filled with something else."""
    try:
        return HTMLResponse(await run_in_threadpool(render, *arguments))
    except (BasinscopeError, KeyError, TypeError, ValueError, AttributeError, UndefinedError) as error:
        return PlainTextResponse(f"this run cannot be shown: {type(error).__name__}: {error}", 422)


async def _watch(catalogue: Catalogue) -> None:
    while True:
        with contextlib.suppress(OSError):  # a folder that vanished while it was read: the next look is soon
            await run_in_threadpool(catalogue.scan)
        await asyncio.sleep(_EVERY)


async def _changes(catalogue: Catalogue, request: Request, ended: Callable[[], bool]) -> AsyncIterator[str]:
    """Everything that is known, then whatever changes, until the visitor leaves."""
    since, sent = 0, ""
    while not ended() and not await request.is_disconnected():
        version, rows, removed = catalogue.changed(since)
        for start in range(0, len(rows), _CHUNK):
            yield _event("runs", rows[start : start + _CHUNK])
        if removed:
            yield _event("gone", removed)
        studies = json.dumps(catalogue.studies)
        if studies != sent:
            sent = studies
            yield _event("studies", catalogue.studies)
        yield _event("ready", {"version": version}) if version != since or since == 0 else ": still here\n\n"
        since = version
        await asyncio.sleep(_EVERY / 2)


async def _counted(streams: set[object], changes: AsyncIterator[str]) -> AsyncIterator[str]:
    """The stream, counted among those that are open while it is."""
    mark = object()
    streams.add(mark)
    try:
        async for change in changes:
            yield change
    finally:
        streams.discard(mark)


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"


def _file(name: str, kind: str) -> Callable[[Request], Any]:
    text = asset(name)

    async def answer(request: Request) -> Response:
        return Response(text, media_type=kind)

    return answer


class _Guard:
    """Lets in who may see the page, and says to browsers what the page may do.

    A token is shown as a bearer, never in an address, which logs and histories keep. Browsers get theirs behind the #
    of the address that was printed, show it once at `/enter`, and are known by a cookie that does not hold it.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: tuple[str, ...]) -> None:
        self._app, self._token, self._hosts = app, token, hosts
        self._session = "" if token is None else hmac.new(token.encode(), b"session", "sha256").hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                extra = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in names]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page only shows: use GET", 405)
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if "transfer-encoding" in headers or headers.get("content-length", ["0"]) != ["0"]:
            return PlainTextResponse("this page takes no body", 413)
        if len(scope["query_string"]) > _MOST_QUERY:
            return PlainTextResponse("this address is too long", 414)
        if self._token is None:
            names = headers.get("host", [""])
            allowed = len(names) == 1 and _hostname(names[0]) in self._hosts
            return None if allowed else PlainTextResponse(f"this page does not answer as {names[0][:200]!r}", 421)
        bearers = [value.removeprefix("Bearer ").strip() for value in headers.get("authorization", [])]
        if len(bearers) == 1 and _equal(bearers[0], self._token):
            return self._entered() if scope["path"] == "/enter" else None
        cookies = headers.get("cookie", [])
        if scope["path"] == "/enter.js" or (len(cookies) == 1 and _equal(_cookie(cookies[0]), self._session)):
            return None
        if scope["path"] == "/":
            return HTMLResponse(asset("enter.html"), 401)
        return PlainTextResponse("a token is needed: open the address that `basinscope serve` printed", 401)

    def _entered(self) -> Response:
        answer = Response(status_code=204)
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="strict", path="/")
        return answer


def _equal(given: str, secret: str) -> bool:
    """Whether they are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(), secret.encode())


def _cookie(header: str) -> str:
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)


def _hostname(host: str) -> str:
    """The name in a Host header, without the port; nothing if it is none.

    Examples:
        >>> _hostname("localhost:8000"), _hostname("[::1]:8000"), _hostname("localhost:80@evil.example")
        ('localhost', '::1', '')
    """
    match = _HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower()
