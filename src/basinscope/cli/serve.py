"""`basinscope serve`: the live page over a folder of runs."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from ..errors import InputError

_LEAST = 16  # characters of a token


def serve(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of studies, trainings and reports.")] = Path(
        "runs"
    ),
    host: Annotated[str, typer.Option("--host", help="Address to listen at; any but this machine's needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="BASINSCOPE_TOKEN",
            help="Secret that the address must carry; one is made where --host needs it.",
        ),
    ] = None,
) -> None:
    """Show runs and studies in a browser as they progress. Reads only."""
    try:
        import uvicorn

        from ..report.catalogue import Catalogue
        from ..report.listening import configuration
        from ..report.server import LOCAL, application
    except ModuleNotFoundError as error:
        raise InputError(f"the live page needs {error.name} — pip install 'basinscope[serve]'") from error
    if token is not None and len(token) < _LEAST:
        raise InputError(f"--token must have at least {_LEAST} characters, got {len(token)} — leave it out to get one")
    if token is None and host not in LOCAL:
        token = secrets.token_urlsafe(24)
    app = application(Catalogue(runs), token=token, ended=lambda: server.should_exit)
    server = uvicorn.Server(configuration(app))
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}:{port}: {error.strerror or error} — is it taken? Choose another with --port"
        ) from error
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/" + (f"#{quote(token, safe='')}" if token else "")
    Console(highlight=False).print(f"live page of {runs}: {address}   (Ctrl-C ends it)", soft_wrap=True, markup=False)
    with listening:
        server.run(sockets=[listening])
