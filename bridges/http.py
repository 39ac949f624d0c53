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
import itertools
import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from bridges.bindings import members_of
from bridges.link import CANCELLED, Cancel, Link, is_modern
from bridges.shim_consumer import cancelled_id
from conductor.bridging import (
    INTERNAL_ERROR,
    Answered,
    Call,
    Id,
    Malformed,
    Message,
    Payload,
    decode,
    encode_error,
    encode_id,
    error_pieces,
    notification_pieces,
    request_pieces,
    result_pieces,
)

__all__ = ["HttpDoor", "HttpSession"]

_KEPT_EVENTS: Final = 1000
_KEPT_BYTES: Final = 4 * 1024 * 1024
_MAX_BODY: Final = 256 * 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


@attrs.define(eq=False)
class _Stream:
    """A server-sent event stream, whoever reads it at the moment."""

    name: str
    events: list[tuple[int, bytes]] = attrs.field(factory=list)
    done: bool = False
    size: int = 0
    delivered: int = 0
    """The number of the newest event that a client was sent."""
    more: trio.Event = attrs.field(factory=trio.Event)
    _numbers: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def put(self, line: bytes, *, last: bool = False) -> None:
        self.events.append((next(self._numbers), line))
        self.size += len(line)
        while self._has_too_much():
            self.size -= len(self.events.pop(0)[1])
        self.done = self.done or last
        self.more.set()
        self.more = trio.Event()

    def _has_too_much(self) -> bool:
        """What a client has may be forgotten; what it has not, only where nobody waits for it."""
        if len(self.events) <= _KEPT_EVENTS and self.size <= _KEPT_BYTES:
            return False
        return len(self.events) > 1 and (self.name == "0" or self.events[0][0] <= self.delivered)

    def end(self) -> None:
        self.done = True
        self.more.set()
        self.more = trio.Event()


class HttpSession:
    """The consumer of a link: the agent's MCP client, over HTTP."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.link: Link | None = None
        self.standing = _Stream("0")
        """What belongs to no request."""
        self.streams: dict[str, _Stream] = {"0": self.standing}
        self.calls: dict[Id, tuple[Call, _Stream]] = {}
        self._sent: dict[int, Answered] = {}
        self._ids = itertools.count(1)
        self._stream_names = itertools.count(1)
        self._tokens: dict[bytes, Call] = {}

    # -- what the agent sends ----------------------------------------------------------------------

    def ask(self, message: Message) -> _Stream:
        """Take a request; its answer ends the stream."""
        stream = _Stream(f"{next(self._stream_names)}")
        self.streams = {n: s for n, s in self.streams.items() if not s.done or n == "0"}
        self.streams[stream.name] = stream
        id: Id = message.id  # type: ignore[assignment]
        call = Call(str(message.method), self, id)
        self.calls[id] = call, stream
        params = message.params if isinstance(message.params, bytes | memoryview) else None
        raw = None if not message.params else bytes(message.params)
        meta = members_of(raw).get("_meta") if raw is not None else None
        token = members_of(meta).get("progressToken") if meta is not None else None
        if token is not None:
            self._tokens[bytes(token)] = call
        assert self.link is not None
        self.link.request(call, str(message.method), raw if params is None else params)
        return stream

    def take(self, message: Message) -> None:
        """Take a notification or an answer."""
        assert self.link is not None
        raw = bytes(message.params) if message.params else None
        if message.method:
            if message.method == CANCELLED:
                self.withdraw(cancelled_id(raw))
            else:
                self.link.notification(str(message.method), raw)
            return
        answered = self._sent.pop(message.id, None)  # type: ignore[arg-type]
        if answered is not None:
            answered(
                bytes(message.result) if message.result else None,
                bytes(message.error) if message.error else None,
            )

    def withdraw(self, id: Id) -> None:
        call, stream = self.calls.pop(id, (None, None))
        if call is not None and stream is not None:
            call.cancel()
            call.answered = True
            stream.end()

    # -- Consumer ----------------------------------------------------------------------------------

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call.answered:
            return
        call.answered = True
        _, stream = self.calls.pop(call.source_id, (None, None))
        self._tokens = {key: of for key, of in self._tokens.items() if of is not call}
        if stream is not None:
            if result is not None:
                pieces = result_pieces(call.source_id, result)
            else:
                pieces = error_pieces(call.source_id, error or b"null")
            stream.put(b"".join(pieces), last=True)

    def request(self, method: str, params: Payload | None, answered: Answered) -> Cancel:
        id = next(self._ids)
        self._sent[id] = answered
        stream = self._stream_for(None)
        stream.put(b"".join(request_pieces(id, method, params)))

        def cancel() -> None:
            if self._sent.pop(id, None) is not None:
                gone = b'{"requestId":%b}' % encode_id(id)
                stream.put(b"".join(notification_pieces(CANCELLED, gone)))

        return cancel

    def notify(self, method: str, params: Payload | None, owner: Call | None = None) -> None:
        if owner is None and params is not None:
            token = members_of(params).get("progressToken")
            owner = self._tokens.get(bytes(token)) if token is not None else None
        line = b"".join(notification_pieces(method, params))
        self._stream_for(owner, standing=owner is None).put(line)

    def close(self) -> None:
        gone = encode_error(INTERNAL_ERROR, "The MCP client is gone")
        for answered in list(self._sent.values()):
            answered(None, gone)
        self._sent.clear()
        for call, _ in list(self.calls.values()):
            self.respond(call, None, encode_error(INTERNAL_ERROR, "The MCP server is gone"))
        for stream in self.streams.values():
            stream.end()

    def _stream_for(self, owner: Call | None, *, standing: bool = False) -> _Stream:
        """A request's own stream; for what the server asks, that of the newest open request."""
        for call, stream in reversed(list(self.calls.values())):
            if call is owner or (owner is None and not standing):
                return stream
        return self.standing


@attrs.define(eq=False)
class _Site:
    """What is served for one declaration."""

    token: str
    connect: Callable[[HttpSession], None]
    sessions: dict[str, HttpSession] = attrs.field(factory=dict)
    modern: HttpSession | None = None


@attrs.define(eq=False)
class HttpDoor:
    """Serves every declaration of a bridge, at one port."""

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
        gone = await _events(stream, 0, named, receive, send)
        if gone and session is site.modern:
            session.withdraw(message.id)  # type: ignore[arg-type]

    async def _get(self, site: _Site, headers: dict[str, str], receive: Any, send: Any) -> None:
        session = site.sessions.get(headers.get("mcp-session-id", ""))
        if session is None:
            await _plain(send, 404 if "mcp-session-id" in headers else 405)
            return
        name, _, number = headers.get("last-event-id", "0.0").partition(".")
        stream = session.streams.get(name)
        if stream is None or not number.isdigit():
            await _plain(send, 404)
            return
        after = int(number)
        if "last-event-id" not in headers and stream.events:
            after = 0
        await _events(stream, after, [(b"mcp-session-id", session.id.encode())], receive, send)

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


async def _events(
    stream: _Stream, after: int, headers: list[tuple[bytes, bytes]], receive: Any, send: Any
) -> bool:
    """Send what the stream has and gets, until it ends; true if the client went before that."""
    head = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    async with trio.open_nursery() as nursery:
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        sent = after
        while True:
            more = stream.more
            waiting = [event for event in stream.events if event[0] > sent]
            if not waiting and stream.done:
                break
            if not waiting:
                await more.wait()
            for number, line in waiting:
                sent = number
                event = b"id: %b.%d\ndata: %b\n\n" % (stream.name.encode(), number, line[:-1])
                await send({"type": "http.response.body", "body": event, "more_body": True})
                stream.delivered = max(stream.delivered, number)
        await send({"type": "http.response.body", "body": b""})
        nursery.cancel_scope.cancel()
    return gone


async def _plain(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _json(send: Any, status: int, pieces: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(pieces)})
