"""MCP Streamable HTTP on loopback, for agents that take servers over HTTP and are to be given them
so (`mcp_bridge: http`).

hypercorn speaks HTTP; here is what MCP puts on top (2025-03-26 to 2026-07-28). Every declaration
has a path and a bearer token of its own; Host and Origin must be ours, so no web page reaches it by
a name that it made up. A session begins with `initialize` and is one MCP connection; requests of
the newest revision need none and share one. What is sent on a stream is kept, within bounds, so
that a stream that broke can be resumed with `Last-Event-ID`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from bridges.http_session import HttpSession
from bridges.http_streams import STANDING, send_events
from bridges.link import CANCELLED, is_modern
from conductor.bridging import Malformed, Message, decode, encode_error, error_pieces

__all__ = ["HttpDoor"]

_MAX_BODY: Final = 256 * 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


@attrs.define(eq=False)
class _Site:
    """What is served for one declaration."""

    token: str
    connect: Callable[[HttpSession], None]
    sessions: dict[str, HttpSession] = attrs.field(factory=dict)
    modern: HttpSession | None = None


@attrs.define(eq=False)
class HttpDoor:
    """Serves every declaration of a bridge, at one port. `room` waits while others do not read."""

    room: Callable[[], Awaitable[None]]
    origin: str | None = None
    _sites: dict[str, _Site] = attrs.field(factory=dict, init=False)
    _ready: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def wait_open(self) -> str:
        await self._ready.wait()
        assert self.origin is not None
        return self.origin

    async def serve(self) -> None:
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = ["127.0.0.1:0"]
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.graceful_timeout = 0.1
        async with trio.open_nursery() as nursery:
            binds: list[str] = await nursery.start(serve, self, config)
            self.origin = binds[0]
            self._ready.set()

    def publish(self, connect: Callable[[HttpSession], None]) -> tuple[str, str]:
        """A path and a token for one more declaration."""
        path, token = f"/mcp/{secrets.token_hex(8)}", secrets.token_urlsafe(32)
        self._sites[path] = _Site(token, connect)
        return path, token

    def withdraw(self, path: str) -> None:
        site = self._sites.pop(path, None)
        if site is not None:
            for session in [*site.sessions.values(), *([site.modern] if site.modern else [])]:
                if session.link is not None:
                    session.link.close()

    # -- ASGI --------------------------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers = {
            name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        site = self._sites.get(scope["path"])
        refusal = self._refusal(site, headers)
        if refusal is not None or site is None:
            await _plain(send, refusal or 404)
        elif scope["method"] == "POST":
            await self._post(site, headers, receive, send)
        elif scope["method"] == "GET":
            await self._get(site, headers, receive, send)
        elif scope["method"] == "DELETE":
            await self._delete(site, headers, send)
        else:
            await _plain(send, 405)

    def _refusal(self, site: _Site | None, headers: dict[str, str]) -> int | None:
        assert self.origin is not None
        port = urlsplit(self.origin).port
        hosts = {f"{name}:{port}" for name in _LOOPBACK}
        origin = headers.get("origin")
        if headers.get("host") not in hosts:
            return 421
        if origin is not None and urlsplit(origin).netloc not in hosts:
            return 403
        shown = headers.get("authorization", "")
        expected = f"Bearer {site.token}" if site is not None else secrets.token_hex(32)
        if not hmac.compare_digest(shown.encode(), expected.encode()):
            return 401
        return None

    async def _post(self, site: _Site, headers: dict[str, str], receive: Any, send: Any) -> None:
        await self.room()
        body = await _body(receive)
        if body is None:
            await _plain(send, 413)
            return
        message = decode(body)
        if not isinstance(message, Message):
            code = message.code if isinstance(message, Malformed) else -32600
            await _json(send, 400, error_pieces(None, encode_error(code, "Invalid request")))
            return
        session = self._session(site, headers, message)
        if session is None:
            await _plain(send, 404 if "mcp-session-id" in headers else 400)
            return
        if not message.method or message.id.__class__.__name__ == "UnsetType":
            session.take(message)
            await _plain(send, 202)
            return
        stream = session.ask(message)
        named = [] if session is site.modern else [(b"mcp-session-id", session.id.encode())]
        gone = await send_events(stream, 0, named, receive, send)
        if gone and session is site.modern:
            session.withdraw(message.id)  # type: ignore[arg-type]

    async def _get(self, site: _Site, headers: dict[str, str], receive: Any, send: Any) -> None:
        session = site.sessions.get(headers.get("mcp-session-id", ""))
        if session is None:
            await _plain(send, 404 if "mcp-session-id" in headers else 405)
            return
        name, _, number = headers.get("last-event-id", f"{STANDING}.0").partition(".")
        stream = session.streams.get(name)
        if stream is None or not number.isdigit():
            await _plain(send, 404)
            return
        await send_events(
            stream, int(number), [(b"mcp-session-id", session.id.encode())], receive, send
        )

    async def _delete(self, site: _Site, headers: dict[str, str], send: Any) -> None:
        session = site.sessions.pop(headers.get("mcp-session-id", ""), None)
        if session is not None and session.link is not None:
            session.link.close()
        await _plain(send, 204 if session is not None else 404)

    def _session(
        self, site: _Site, headers: dict[str, str], message: Message
    ) -> HttpSession | None:
        id = headers.get("mcp-session-id")
        if id is not None:
            return site.sessions.get(id)
        raw = bytes(message.params) if message.params else None
        if message.method == "initialize":
            session = HttpSession(secrets.token_urlsafe(24))
            site.sessions[session.id] = session
            site.connect(session)
            return session
        if message.method == "server/discover" or is_modern(raw):
            if site.modern is None:
                site.modern = HttpSession("")
                site.connect(site.modern)
            return site.modern
        return site.modern if message.method == CANCELLED else None


async def _body(receive: Any) -> bytes | None:
    chunks, size = [], 0
    while True:
        event = await receive()
        chunks.append(event.get("body", b""))
        size += len(chunks[-1])
        if size > _MAX_BODY:
            return None
        if not event.get("more_body"):
            return b"".join(chunks)


async def _plain(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _json(send: Any, status: int, pieces: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(pieces)})
