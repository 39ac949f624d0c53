"""MCP Streamable HTTP server on loopback, for agents that get their servers over HTTP
(`mcp_bridge: http`).

hypercorn implements HTTP; this ASGI application implements MCP on top (2025-03-26 to 2026-07-28).
`http_listener` bounds the connections that have not shown a token.
Every declaration has its own path and bearer token. `Host` and `Origin` must name this server,
against access from web pages by DNS rebinding. A session begins with `initialize` and is
one MCP connection; requests of revision 2026-07-28 need no session and share one connection. Events
of a stream are kept, within bounds, so that a broken stream can be resumed with `Last-Event-ID`.

Bounds: when a declaration has `max_mcp_sessions` sessions, a new one evicts the least recently used
one without an open stream (its client gets 404 and may initialize again, as MCP specifies). Request
bodies that are being received share a budget, and each must not pause for longer than 30 s.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from msgspec import UNSET

from bridges.http_listener import HttpListener
from bridges.http_session import McpHttpSession
from bridges.http_streams import STANDING_STREAM, send_events
from bridges.mcp_protocol import CANCELLED, is_modern
from conductor.bridge_api import (
    INVALID_REQUEST,
    Limits,
    Malformed,
    Message,
    decode,
    encode_error,
    error_pieces,
)

__all__ = ["McpHttpServer"]

_BODY_TIMEOUT: Final = 30.0
"""Seconds between two chunks of a request body."""
_NUMBER: Final = re.compile("[0-9]{1,18}")
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


@attrs.define(eq=False)
class _ServedDeclaration:
    """The sessions of one declaration."""

    token: str
    connect: Callable[[McpHttpSession], None]
    sessions: dict[str, McpHttpSession] = attrs.field(factory=dict)
    """By id, least recently used first."""
    modern: McpHttpSession | None = None


@attrs.define(eq=False)
class McpHttpServer:
    """Serves all declarations of a bridge on one port. `room` waits while the chain has
    back-pressure."""

    room: Callable[[], Awaitable[None]]
    limits: Limits = attrs.field(factory=Limits)
    origin: str | None = attrs.field(default=None, init=False)
    _receiving: int = attrs.field(default=0, init=False)
    """Bytes of incomplete request bodies."""
    _sites: dict[str, _ServedDeclaration] = attrs.field(factory=dict, init=False)
    _listener: HttpListener = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listener = HttpListener(self._answer)

    def open(self) -> str:
        """Listen when first called; returns the origin. Raises `OSError`."""
        if self.origin is None:
            self.origin = f"http://127.0.0.1:{self._listener.open()}"
        return self.origin

    async def serve(self) -> None:
        """Answer requests until cancelled."""
        await self._listener.serve()

    def close(self) -> None:
        self._listener.close()

    def publish(self, connect: Callable[[McpHttpSession], None]) -> tuple[str, str]:
        """Return the path and the bearer token of a new declaration."""
        path, token = f"/mcp/{secrets.token_hex(8)}", secrets.token_urlsafe(32)
        self._sites[path] = _ServedDeclaration(token, connect)
        return path, token

    def withdraw(self, path: str) -> None:
        site = self._sites.pop(path, None)
        if site is not None:
            for session in [*site.sessions.values(), *([site.modern] if site.modern else [])]:
                if session.mcp_connection is not None:
                    session.mcp_connection.close()

    # -- ASGI --------------------------------------------------------------------------------------

    async def _answer(
        self, accept_token: Callable[[], None], scope: Any, receive: Any, send: Any
    ) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        headers = {
            name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        site = self._sites.get(scope["path"])
        refusal = self._refusal(site, headers)
        if refusal is not None or site is None:
            await _respond_empty(send, refusal or 404)
            return
        accept_token()
        if scope["method"] == "POST":
            await self._post(site, headers, receive, send)
        elif scope["method"] == "GET":
            await self._get(site, headers, receive, send)
        elif scope["method"] == "DELETE":
            await self._delete(site, headers, send)
        else:
            await _respond_empty(send, 405)

    def _refusal(self, site: _ServedDeclaration | None, headers: dict[str, str]) -> int | None:
        assert self.origin is not None
        port = urlsplit(self.origin).port
        hosts = {f"{name}:{port}" for name in _LOOPBACK_NAMES}
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

    async def _post(
        self, site: _ServedDeclaration, headers: dict[str, str], receive: Any, send: Any
    ) -> None:
        await self.room()
        known = site.sessions.get(headers.get("mcp-session-id", ""), site.modern)
        if known is not None:
            await known.wait_room()
        body = await self._body(receive)
        if isinstance(body, int):
            await _respond_empty(send, body)
            return
        message = decode(body)
        if not isinstance(message, Message):
            code, id = INVALID_REQUEST, None
            if isinstance(message, Malformed):
                code, id = message.code, None if message.id is UNSET else message.id
            await _respond_json(send, 400, error_pieces(id, encode_error(code, "Invalid request")))
            return
        session = self._session(site, headers, message)
        if isinstance(session, int):
            await _respond_empty(send, session)
            return
        if message.method is UNSET or message.id is UNSET:
            session.take(message)
            await _respond_empty(send, 202)
            return
        if session.open_requests >= self.limits.max_open_requests:
            text = f"more than {self.limits.max_open_requests} open requests"
            error = encode_error(INVALID_REQUEST, text)
            await _respond_json(send, 429, error_pieces(message.id, error))
            return
        stream = session.ask(message)
        named = [] if session is site.modern else [(b"mcp-session-id", session.id.encode())]
        gone = await send_events(stream, 0, named, receive, send)
        if gone and session is site.modern:
            session.give_up(stream)

    async def _get(
        self, site: _ServedDeclaration, headers: dict[str, str], receive: Any, send: Any
    ) -> None:
        session = _use_session(site, headers.get("mcp-session-id", ""))
        if session is None:
            await _respond_empty(send, 404 if "mcp-session-id" in headers else 405)
            return
        name, _, number = headers.get("last-event-id", f"{STANDING_STREAM}.0").partition(".")
        stream = session.streams.get(name)
        if stream is None or _NUMBER.fullmatch(number) is None:
            await _respond_empty(send, 404)
            return
        await send_events(
            stream, int(number), [(b"mcp-session-id", session.id.encode())], receive, send
        )

    async def _delete(self, site: _ServedDeclaration, headers: dict[str, str], send: Any) -> None:
        session = site.sessions.pop(headers.get("mcp-session-id", ""), None)
        if session is not None and session.mcp_connection is not None:
            session.mcp_connection.close()
        await _respond_empty(send, 204 if session is not None else 404)

    def _session(
        self, site: _ServedDeclaration, headers: dict[str, str], message: Message
    ) -> McpHttpSession | int:
        """Return the session of a message, a new one for `initialize`, or an HTTP error status."""
        id = headers.get("mcp-session-id")
        if id is not None:
            return _use_session(site, id) or 404
        raw = bytes(message.params) if message.params else None
        if message.method == "initialize":
            if len(site.sessions) >= self.limits.max_mcp_sessions and not _evict_session(site):
                return 503
            session = McpHttpSession(secrets.token_urlsafe(24))
            site.sessions[session.id] = session
            site.connect(session)
            return session
        if message.method == "server/discover" or is_modern(raw):
            if site.modern is None:
                site.modern = McpHttpSession("")
                site.connect(site.modern)
            return site.modern
        return site.modern if message.method == CANCELLED and site.modern else 400

    async def _body(self, receive: Any) -> bytes | int:
        """Return the body of a request, or an HTTP error status."""
        chunks, size = [], 0
        try:
            while True:
                with trio.move_on_after(_BODY_TIMEOUT) as patience:
                    event = await receive()
                if patience.cancelled_caught:
                    return 408
                chunk = event.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                self._receiving += len(chunk)
                if size > self.limits.max_message_bytes:
                    return 413
                if self._receiving > self.limits.max_message_bytes:
                    return 503  # the shared budget is used up; the client may retry
                if not event.get("more_body"):
                    return b"".join(chunks)
        finally:
            self._receiving -= size


def _use_session(site: _ServedDeclaration, id: str) -> McpHttpSession | None:
    session = site.sessions.pop(id, None)
    if session is not None:
        site.sessions[id] = session
    return session


def _evict_session(site: _ServedDeclaration) -> bool:
    """End the least recently used session without an open stream; `False` if there is none."""
    for id, session in site.sessions.items():
        if not session.is_read:
            del site.sessions[id]
            if session.mcp_connection is not None:
                session.mcp_connection.close()
            return True
    return False


async def _respond_empty(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _respond_json(send: Any, status: int, pieces: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(pieces)})
