"""How the live page listens: so many connections, so much of a header, and so long for a request to be made."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
_MOST_HEADER = 16 << 10  # bytes
_PATIENCE = 10.0  # seconds for a request to arrive whole


class _Timely(H11Protocol):
    """A connection that is closed where its request does not arrive in time: slow senders cannot hold it."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Count the seconds from the first byte of a request, and stop once it is answered by the application."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_PATIENCE, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def configuration(app: ASGIApp, grace: int = 2) -> uvicorn.Config:
    """The configuration of a server for the page: no logs of requests, and limits for all that a visitor may hold.

    Args:
        app: the page.
        grace: seconds that requests may take to end when the server stops.
    """
    return uvicorn.Config(
        app,
        http=_Timely,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEADER,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=grace,
    )
