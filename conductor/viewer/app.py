"""Serve the page of one trace on loopback, and its ASGI application: files, and the trace as JSON.

The page and its files contain nothing of the trace, and need no token; paths below `/api/` do. The
token is in the fragment of the URL, which a browser sends to no server; the page sends it as a
bearer token. Other users of the machine see the arguments of a browser that is started: its URL has
a code in place of the token, which is exchanged once, and only for a process of this user, because
another user's can be faster than the browser.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import attrs
import msgspec
import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_app

from conductor.background_tasks import background_tasks
from conductor.network.peer_user import user_at
from conductor.server.access import AccessPolicy, Refusal, TcpPeer, join_headers, read_tokens
from conductor.viewer.page import MEDIA_TYPES, served_files
from conductor.viewer.trace_source import TraceSource

__all__ = ["ViewerApp", "open_viewer", "view"]

_PAGE: Final = 20_000
"""Rows in one response."""
_PATIENCE: Final = 20.0
"""Seconds for which a request waits for new rows."""
_INTERVAL: Final = 0.1
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_GRACE: Final = 0.5
"""Seconds for responses to be finished at the end."""
_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen
class _Response:
    status: int
    body: bytes
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@attrs.define(eq=False)
class ViewerApp:
    """Serves one trace. `is_live`: a chain that runs writes it."""

    source: TraceSource
    access: AccessPolicy
    token: str
    code: str | None = None
    """Is exchanged for the token, once."""
    is_live: bool = False
    _files: Mapping[str, bytes] = attrs.field(factory=served_files, init=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        response = await self._respond(scope)
        headers = {"content-type": response.media_type, **_HEADERS, **dict(response.headers)}
        headers["content-length"] = str(len(response.body))
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        start = {"type": "http.response.start", "status": response.status, "headers": encoded}
        await send(start)
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, scope: Any) -> _Response:
        headers = join_headers(scope["headers"])
        is_data = scope["path"].startswith("/api/") and scope["path"] != "/api/token"
        policy = self.access if is_data else attrs.evolve(self.access, tokens={})
        server = scope.get("server") or ("", 0)
        refusal = policy.authenticate(headers, TcpPeer(address="", local=str(server[0])))
        if isinstance(refusal, Refusal):
            return _text(refusal.status, refusal.reason, refusal.headers)
        if scope["method"] not in ("GET", "HEAD"):
            return _text(405, "only GET and HEAD", (("allow", "GET, HEAD"),))
        query = {
            name: values[-1]
            for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()
        }
        if scope["path"] == "/api/token":
            return self._exchange(query.get("code", ""), scope)
        if not is_data:
            name = scope["path"].removeprefix("/") or "view.html"
            if name not in self._files:
                return _text(404, "not found")
            media_type = MEDIA_TYPES[name.rpartition(".")[2]]
            return _Response(200, self._files[name], media_type)
        return await self._data(scope["path"].removeprefix("/api/"), query)

    def _exchange(self, code: str, scope: Any) -> _Response:
        if not _is_of_this_user(scope):
            return _text(403, "this link is for the user who started the page")
        if self.code is None or not compare_digest(self.code.encode(), code.encode()):
            return _text(401, "this link was opened before; open the one that was printed")
        self.code = None
        return _Response(200, _encode(self.token))

    async def _data(self, name: str, query: Mapping[str, str]) -> _Response:
        first = max(_number(query.get("from", "0")), 0)
        match name:
            case "rows":
                if "wait" in query:
                    await self._wait_for(first)
                return _Response(200, self._rows(first, max(_number(query.get("strings", "0")), 0)))
            case "record":
                line = await trio.to_thread.run_sync(self.source.line, _number(query.get("row")))
                return _text(404, "no such record") if line is None else _Response(200, line)
            case "search" if query.get("text"):
                search = self.source.search
                found, following = await trio.to_thread.run_sync(search, query["text"], first)
                return _Response(200, _encode({"rows": found, "next": following}))
            case "links":
                links = await trio.to_thread.run_sync(self.source.links)
                return _Response(200, _encode(links))
        return _text(404, "not found")

    async def _wait_for(self, first: int) -> None:
        """Wait until there are rows from `first` on."""
        with trio.move_on_after(_PATIENCE):
            # Rows are added by a thread.
            while len(self.source.index.rows) <= first and self.source.state != "failed":  # noqa: ASYNC110
                await trio.sleep(_INTERVAL)

    def _rows(self, first: int, strings: int) -> bytes:
        """Rows and strings from these numbers on, and what else the page needs to know."""
        source, index = self.source, self.source.index
        state = source.state  # before the rows: if it is not "loading", they are there
        rows = index.rows[first : first + _PAGE]
        head = _encode(
            {
                "name": source.path.name,
                "live": self.is_live,
                "state": state,
                "error": source.error,
                "total": len(index.rows),
                "lanes": index.lanes(),
                "usage": dict(index.usage),
                "strings": index.strings[strings:],
            }
        )
        return head[:-1] + b',"rows":[' + b",".join(rows) + b"]}"


def _is_of_this_user(scope: Any) -> bool:
    """Whether a request comes from this user or root, as far as the kernel can be asked."""
    return user_at(scope["client"], scope["server"]) in (None, 0, os.geteuid())


def _number(text: str | None) -> int:
    """A number of a query; -1 if it is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _text(status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> _Response:
    return _Response(status, text.encode() + b"\n", "text/plain; charset=utf-8", headers)


# -- the server ------------------------------------------------------------------------------------


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
