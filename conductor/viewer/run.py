"""Serve the page of one trace on loopback: a free port, a token, the URL, a browser."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_app

from conductor.background_tasks import background_tasks
from conductor.server.access import AccessPolicy, read_tokens
from conductor.viewer.app import ViewerApp
from conductor.viewer.trace_source import TraceSource

__all__ = ["open_viewer", "view"]

_GRACE: Final = 0.5
"""Seconds for responses to be finished at the end."""


def view(path: Path, *, port: int, opens_browser: bool, is_live: bool = False) -> None:
    """Serve a trace until Ctrl-C. `is_live`: until the end of stdin, which a conductor holds.

    Prints the URL to stderr, and an error behind which the file is not shown. Raises `OSError` if
    the file or the port cannot be opened.
    """
    with TraceSource(path, _report) as source:
        trio.run(_view, source, port, opens_browser, is_live)


def _report(error: str) -> None:
    _print(f"{error}; only what comes before is shown")


def _print(line: str) -> None:
    """Print a line to stderr in one write: the thread that reads the trace prints, too."""
    sys.stderr.write(f"acp-conductor: {line}\n")
    sys.stderr.flush()


async def _view(source: TraceSource, port: int, opens_browser: bool, is_live: bool) -> None:
    code = secrets.token_urlsafe(32) if opens_browser else None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with (
            open_viewer(source, port, code=code, is_live=is_live) as url,
            trio.open_nursery() as nursery,
        ):
            _print(f"view at {url}")
            if is_live:
                nursery.start_soon(_end_with_stdin, nursery.cancel_scope)
            if opens_browser:
                open_browser = partial(webbrowser.open, f"{url.partition('#')[0]}#code={code}")
                nursery.start_soon(
                    partial(trio.to_thread.run_sync, open_browser, abandon_on_cancel=True)
                )
            await anext(signals)
            nursery.cancel_scope.cancel()


async def _end_with_stdin(scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(0) as stdin:
        while await stdin.receive_some():
            pass
    scope.cancel()


@asynccontextmanager
async def open_viewer(
    source: TraceSource, port: int = 0, *, code: str | None = None, is_live: bool = False
) -> AsyncIterator[str]:
    """Serve during the block; yields the URL with the token. `code` is exchanged for it once."""
    token = secrets.token_urlsafe(32)
    with socket.create_server(("127.0.0.1", port)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        # A browser sends the page's own origin when it loads the script.
        origins = frozenset({f"http://{host}", f"http://{host.replace('127.0.0.1', 'localhost')}"})
        access = AccessPolicy(tokens=read_tokens([f"viewer:{token}"]), origins=origins)
        config = Config()
        config.bind = [f"fd://{os.dup(listener.fileno())}"]
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.graceful_timeout = _GRACE
        app: Callable[..., Any] = ViewerApp(source, access, token, code, is_live)
        async with background_tasks() as nursery:
            await nursery.start(partial(serve_app, app, config, mode="asgi"))
            yield f"http://{host}/#token={token}"
