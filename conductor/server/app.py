"""The ASGI app: what hypercorn has parsed goes to the clients, and what they are told goes back.

    POST    /acp    a message; `initialize` makes a connection
    GET     /acp    an event stream; of a session, or of the connection
    DELETE  /acp    the end of a connection
    GET     /health whether the process lives; /ready: whether it takes new clients; /accepting: the
                    same, as HAProxy wants to be told that those who are here may stay

A WebSocket comes this way only over HTTP/2 (RFC 8441), or on an HTTP/1.1 connection that was used
before; see `listening` for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import trio

from conductor.log import get_logger
from conductor.remote.carrying import RECEIVED, RESUME, SEQUENCE
from conductor.remote.numbering import OutOfStep
from conductor.remote.sse import encode_event
from conductor.server.access import Access, Peer, Refusal, join_headers
from conductor.server.forwarding import COOKIE, Forwarding, cookie_of
from conductor.server.mailboxes import Mailbox
from conductor.server.peeking import Peeked, headers_of
from conductor.server.remote_clients import Owner, RemoteClient, RemoteClients
from conductor.server.requests import CONNECTION, SESSION, is_json, read_post, wants_events
from conductor.server.returning import Arrival, arrive
from conductor.server.sockets import AsgiSocket, carry
from conductor.server.streamable import Streamable, is_error

__all__ = ["COOKIE", "App", "Headers"]

_PATH: Final = "/acp"

Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[str, str]]


log = get_logger(component="server")


@attrs.define(eq=False)
class App:
    """`nursery` runs what belongs to a client longer than one request of it."""

    clients: RemoteClients
    access: Access
    nursery: trio.Nursery
    forwarding: Forwarding | None = None
    """To the other nodes, where there are any."""
    receiving: int = attrs.field(default=0, init=False)
    """Bytes of bodies that are not complete yet."""
    _streamable: dict[RemoteClient, Streamable] = attrs.field(factory=dict, init=False)

    async def __call__(self, peer: Peer, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Exchange(self, peer, scope, receive, send).answer()
        elif scope["type"] == "websocket":
            await self._websocket(peer, scope, receive, send)

    # -- WebSocket ---------------------------------------------------------------------------------

    def upgrade(
        self, path: str, headers: Mapping[str, str], peer: Peer
    ) -> tuple[Arrival, Headers] | Refusal:
        """For whom a WebSocket is to be opened, and the headers that tell it so."""
        if path.partition("?")[0] != _PATH:
            return Refusal(404, f"there is only {_PATH}")
        principal = self.access.principal(headers, peer)
        if isinstance(principal, Refusal):
            return principal
        cookie = cookie_of(headers.get("cookie", ""))
        arrival = arrive(self.clients, headers, cookie, Owner(principal, peer.address))
        if isinstance(arrival, Refusal):
            return arrival
        return arrival, [*self.identity(arrival.client, peer), *arrival.headers]

    async def forwards(self, peeked: Peeked, peer: Peer) -> bool:
        """Whether a WebSocket goes back to a connection of another node, which has served it."""
        owner = await self._elsewhere(join_headers(headers_of(peeked.head)), peer)
        if self.forwarding is None or owner is None:
            return False
        return await self.forwarding.relay_socket(owner, peeked)

    async def _elsewhere(self, headers: Mapping[str, str], peer: Peer) -> str | None:
        """The URL of the node that has the connection which a WebSocket goes back to."""
        if self.forwarding is None or peer.certificate is not None:
            return None  # a certificate cannot be shown for somebody else
        if isinstance(self.access.principal(headers, peer), Refusal):
            return None
        return await self.forwarding.owner(headers, by_cookie=True)

    def identity(self, client: RemoteClient, peer: Peer) -> Headers:
        """What a client is told of its connection: a header, and a cookie for load balancers."""
        secure = "; Secure" if peer.secure else ""
        cookie = f"{COOKIE}={client.id}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return [("acp-connection-id", client.id), ("set-cookie", cookie)]

    async def _websocket(self, peer: Peer, scope: Any, receive: Receive, send: Send) -> None:
        await receive()
        headers = join_headers(scope["headers"])
        socket = AsgiSocket(receive, send)
        owner = await self._elsewhere(headers, peer)
        if self.forwarding is not None and owner is not None:
            accept, most = partial(_accept, send), self.clients.bounds.message_bytes
            if await self.forwarding.relay_messages(owner, scope, accept, socket, most):
                return
        opened = self.upgrade(scope["path"], headers, peer)
        if isinstance(opened, Refusal):
            start = {"type": "websocket.http.response.start", "status": opened.status}
            await send({**start, "headers": _encoded([*_PLAIN, *opened.headers])})
            await send({"type": "websocket.http.response.body", "body": opened.reason.encode()})
            return
        arrival, extra = opened
        await _accept(send, _encoded(extra))
        await carry(socket, arrival, self.clients.patience)

    # -- Streamable HTTP ---------------------------------------------------------------------------

    def connect(self, owner: Owner) -> Streamable | Refusal:
        """A client that speaks HTTP."""
        client = self.clients.admit(owner, "http")
        if isinstance(client, Refusal):
            return client
        streamable = self._streamable[client] = Streamable(client, self.clients.bounds)
        self.nursery.start_soon(self._run, streamable)
        return streamable

    def find(self, id: str | None, principal: str) -> Streamable | Refusal:
        if id is None:
            return Refusal(400, "Acp-Connection-Id header required")
        client = self.clients.find(id, principal)
        streamable = self._streamable.get(client) if client is not None else None
        return streamable or Refusal(404, "Unknown Acp-Connection-Id")

    async def _run(self, streamable: Streamable) -> None:
        try:
            await streamable.run()
        except Exception as exc:  # a mistake of ours, which is no other client's business
            log.error("a client was given up", client=streamable.client.number, exc_info=exc)
            streamable.client.end()
        finally:
            del self._streamable[streamable.client]


@attrs.define(eq=False)
class _Exchange:
    """One request, and its response."""

    app: App
    peer: Peer
    scope: Any
    receive: Receive
    send: Send
    headers: Mapping[str, str] = attrs.field(init=False)
    principal: str = attrs.field(default="", init=False)
    _received: bool = attrs.field(default=False, init=False)
    """The body has been read to its end."""

    def __attrs_post_init__(self) -> None:
        self.headers = join_headers(self.scope["headers"])

    async def answer(self) -> None:
        with suppress(trio.BrokenResourceError):  # it does not want to know any more
            await self._answer()

    async def _answer(self) -> None:
        path, method = self.scope["path"], self.scope["method"]
        if path in ("/health", "/ready", "/accepting"):
            await self._state(path, method)
            return
        if path != _PATH:
            await self._refuse(Refusal(404, f"there is only {_PATH}"))
            return
        if method == "OPTIONS":
            allowed = self.app.access.preflight(self.headers, self.peer)
            if isinstance(allowed, Refusal):
                await self._refuse(allowed)
            else:
                await self._respond(204, b"", allowed)
            return
        principal = self.app.access.principal(self.headers, self.peer)
        if isinstance(principal, Refusal):
            await self._refuse(principal)
            return
        self.principal = principal
        handler = {"POST": self._post, "GET": self._get, "DELETE": self._delete}.get(method)
        if handler is None:
            await self._refuse(Refusal(405, "Method Not Allowed", (("allow", _METHODS),)))
        else:
            await handler()

    async def _state(self, path: str, method: str) -> None:
        if method not in ("GET", "HEAD"):
            await self._refuse(Refusal(405, "Method Not Allowed", (("allow", "GET, HEAD"),)))
        elif path != "/health" and not self.app.clients.ready:
            await self._refuse(Refusal(503 if path == "/ready" else 404, "not ready"))
        elif path != "/health":
            directory = self.app.clients.directory
            away = directory is not None and directory.away
            await self._respond(200, b"ready; no sessions of others" if away else b"ready", _PLAIN)
        else:
            await self._respond(200, b"ok", _PLAIN)

    # -- POST --------------------------------------------------------------------------------------

    async def _post(self) -> None:
        if RECEIVED in self.headers:
            await self._acknowledge()
            return
        if not is_json(self.headers.get("content-type", "")):
            await self._refuse(Refusal(415, "Content-Type must be application/json"))
            return
        body = await self._body()
        if isinstance(body, Refusal):
            await self._refuse(body)
            return
        posted = read_post(self.headers, body)
        if isinstance(posted, Refusal):
            await self._refuse(posted)
        elif posted.is_initialize:
            await self._initialize(posted)
        elif not await self._forward(body):
            streamable = self._find()
            number = self._number(SEQUENCE)
            refusal = (
                streamable
                if isinstance(streamable, Refusal)
                else await streamable.post(posted, number)
            )
            if refusal is not None:
                await self._refuse(refusal)
            else:
                await self._respond(202, b"", [])

    async def _initialize(self, posted: Any) -> None:
        """Always a new connection, whatever the headers name."""
        streamable = self.app.connect(Owner(self.principal, self.peer.address))
        if isinstance(streamable, Refusal):
            await self._refuse(streamable)
            return
        client = streamable.client
        streamable.numbered = RESUME in self.headers
        # A proxy asks its successor, which is the client, before it can answer: whoever initializes
        # one must know the connection first, to open its stream.
        early = posted.method != "initialize"
        if early:
            identity = self._identity(streamable)
            await self._start(200, [("content-type", "application/json"), *identity])
            await self._write(b"\n")
        answer: bytes | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_gone, nursery.cancel_scope)
                answer = await streamable.initialize(posted)
                nursery.cancel_scope.cancel()
        finally:
            if answer is None or is_error(answer):
                client.end()
        if early:
            await self._write(answer or b"", last=True)
            return
        if answer is None:
            await self._refuse(Refusal(500, "agent closed before initialize response"))
            return
        if self.app.clients.directory is not None:
            await self.app.clients.directory.wait_published()
        identity = [] if is_error(answer) else self._identity(streamable)
        await self._respond(200, answer, [("content-type", "application/json"), *identity])

    def _identity(self, streamable: Streamable) -> Headers:
        keep = [(RESUME, f"{self.app.clients.patience.keep:g}")] if streamable.numbered else []
        return [*self.app.identity(streamable.client, self.peer), *keep]

    async def _acknowledge(self) -> None:
        """One of ours says how much of a stream it has."""
        if await self._forward():
            return
        streamable, number = self._find(), self._number(RECEIVED)
        if isinstance(streamable, Refusal):
            await self._refuse(streamable)
            return
        try:
            streamable.mailboxes.of(self.headers.get(SESSION)).acknowledge(number or 0)
        except OutOfStep as exc:
            await self._refuse(Refusal(400, str(exc)))
        else:
            await self._respond(202, b"", [])

    def _number(self, header: str) -> int | None:
        value = self.headers.get(header, "")
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None

    async def _body(self) -> bytes | Refusal:
        """The body, read to its end: what still comes for a request that was answered would end the
        whole TCP connection, which may be shared (hypercorn, HTTP/2)."""
        bounds = self.app.clients.bounds
        body = bytearray()
        refusal: Refusal | None = None
        try:
            async for chunk in self._chunks(bounds.message_bytes):
                if refusal is None:
                    body += chunk
                    self.app.receiving += len(chunk)
                if len(body) > bounds.message_bytes:
                    refusal = Refusal(413, "POST body too large")
                elif self.app.receiving > bounds.body_bytes:
                    refusal = Refusal(503, "too much at a time", (("retry-after", "1"),))
                if refusal is not None:
                    self.app.receiving -= len(body)
                    body.clear()
            return refusal or bytes(body)
        except trio.TooSlowError:
            return Refusal(408, "the rest of the body did not come")
        finally:
            self.app.receiving -= len(body)

    async def _chunks(self, most: int) -> AsyncIterator[bytes]:
        """What is left of the body; one that is much longer than it may be is given up."""
        while not self._received and most + _EXCESS > 0:
            with trio.fail_after(self.app.clients.patience.headers):
                event = await self.receive()
            if event["type"] == "http.disconnect":
                raise trio.BrokenResourceError
            self._received = not event.get("more_body")
            chunk = event.get("body", b"")
            most -= len(chunk)
            yield chunk

    # -- GET ---------------------------------------------------------------------------------------

    async def _get(self) -> None:
        if not wants_events(self.headers.get("accept", "")):
            await self._refuse(Refusal(406, "client must accept text/event-stream"))
            return
        if await self._forward():
            return
        streamable = self._find()
        if isinstance(streamable, Refusal):
            await self._refuse(streamable)
            return
        mailbox = streamable.mailbox(self.headers.get(SESSION))
        if isinstance(mailbox, Refusal):
            await self._refuse(mailbox)
            return
        if streamable.numbered:
            try:
                mailbox.acknowledge(self._number(_LAST_EVENT) or 0)
            except OutOfStep as exc:
                await self._refuse(Refusal(400, str(exc)))
                return
        async with streamable.reading(mailbox), trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, nursery.cancel_scope)
            await self._start(200, [("content-type", "text/event-stream"), _NO_STORE])
            if streamable.numbered:
                await self._tell_numbered(mailbox)
            else:
                await self._tell(mailbox)
            nursery.cancel_scope.cancel()

    async def _tell(self, mailbox: Mailbox) -> None:
        await self._write(_COMMENT)  # what stands between must see that the stream is open
        while True:
            lines = None
            with trio.move_on_after(self.app.clients.patience.keep_alive):
                lines = await mailbox.take()
            if lines is None:
                await self._write(_COMMENT)
            elif not lines:
                await self._write(b"", last=True)
                return
            else:
                await self._write_events(mailbox, deque(lines))

    async def _write_events(self, mailbox: Mailbox, lines: deque[bytes]) -> None:
        """A part at a time, so that a client which goes loses no more than the one under way."""
        try:
            while lines:
                await (
                    trio.lowlevel.checkpoint()
                )  # hypercorn takes what it cannot send, and is silent
                part = bytearray()
                while lines and len(part) < _PART:
                    part += b"data: %b\n\n" % lines.popleft()
                await self._write(bytes(part))
        finally:
            if lines:
                mailbox.put_back(list(lines))

    async def _tell_numbered(self, mailbox: Mailbox) -> None:
        """One of ours is told again what it has not got, and no more than a window at a time."""
        await self._write(_COMMENT)
        again = range(mailbox.sent.acknowledged + 1, mailbox.sent.last + 1)
        events = [mailbox.sent.get(number) for number in again]
        while True:
            if events:
                await self._write(b"".join([encode_event(e.text, e.number) for e in events]))
            events = []
            with trio.move_on_after(self.app.clients.patience.keep_alive) as waiting:
                await mailbox.room()
                events = await mailbox.take_numbered()
            if waiting.cancelled_caught:
                await self._write(_COMMENT)
            elif not events:
                await self._write(b"", last=True)
                return

    async def _until_gone(self, scope: trio.CancelScope) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    # -- DELETE ------------------------------------------------------------------------------------

    async def _delete(self) -> None:
        if await self._forward():
            return
        streamable = self._find()
        if isinstance(streamable, Refusal):
            await self._refuse(streamable)
            return
        streamable.client.end()
        await self._respond(202, b"", [])

    # ----------------------------------------------------------------------------------------------

    async def _forward(self, body: bytes = b"") -> bool:
        """Whether the connection is another node's, which has answered."""
        forwarding = self.app.forwarding
        owner = await forwarding.owner(self.headers) if forwarding is not None else None
        if forwarding is None or owner is None:
            return False
        if self.peer.certificate is not None:  # which cannot be shown for somebody else
            location = ("location", f"{owner}{_PATH}")
            await self._refuse(Refusal(307, "the connection is on another server", (location,)))
            return True
        done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, nursery.cancel_scope)
            done = await forwarding.relay_exchange(owner, self.scope, body, self.send)
            nursery.cancel_scope.cancel()
        return done

    def _find(self) -> Streamable | Refusal:
        return self.app.find(self.headers.get(CONNECTION), self.principal)

    async def _refuse(self, refusal: Refusal) -> None:
        with suppress(trio.TooSlowError):
            async for _ in self._chunks(0):
                pass
        body = refusal.reason.encode()
        await self._respond(refusal.status, body, [*_PLAIN, *refusal.headers])

    async def _respond(self, status: int, body: bytes, headers: Headers) -> None:
        length = [] if status == 204 else [("content-length", str(len(body)))]
        await self._start(status, [*headers, *length])
        await self._write(body, last=True)

    async def _start(self, status: int, headers: Headers) -> None:
        start = {"type": "http.response.start", "status": status}
        cors = self.app.access.cors(self.headers)
        await self.send({**start, "headers": _encoded([*headers, *cors])})

    async def _write(self, body: bytes, *, last: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})


async def _accept(send: Send, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await send({"type": "websocket.accept", "headers": list(headers)})


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


_PART: Final = 65536
_EXCESS: Final = 1024 * 1024
"""What is read, and thrown away, of a body that is too long, or that nobody asked for."""
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_PLAIN: Final = [("content-type", "text/plain; charset=utf-8")]
_NO_STORE: Final = ("cache-control", "no-store")
_COMMENT: Final = b":\n\n"
_LAST_EVENT: Final = "last-event-id"
