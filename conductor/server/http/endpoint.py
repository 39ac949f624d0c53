"""Responses to HTTP requests (RFD "Unified Endpoint Routing").

POST    /acp        a message; `initialize` creates a connection
GET     /acp        an event stream, of a session or of the connection
DELETE  /acp        end a connection
GET     /health     200 while the process lives
GET     /ready      200 while new clients are admitted, else 503
GET     /accepting  the same with 404, by which HAProxy keeps existing clients on the server
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, Final, Protocol

import attrs
import trio

from conductor.acp import CONNECTION_HEADER, SESSION_HEADER
from conductor.network.resumable_stream import RECEIVED_HEADER, RESUME_HEADER, SEQUENCE_HEADER
from conductor.network.sequence_numbers import SequenceError
from conductor.network.sse import encode_event
from conductor.server.access import ALLOWED_METHODS, Refusal, TcpPeer
from conductor.server.clients import ClientRegistry, Device, RemoteClient
from conductor.server.http.connection import ServerHttpConnection, is_error
from conductor.server.http.mailboxes import Mailbox
from conductor.server.http.parse_request import (
    ENDPOINT_PATH,
    accepts_event_stream,
    is_json,
    parse_post,
)
from conductor.server.http.request_response import PLAIN_TEXT, Headers, RequestResponse

__all__ = ["EndpointHandler", "EndpointHost"]

_NO_STORE: Final = ("cache-control", "no-store")
_LAST_EVENT_HEADER: Final = "last-event-id"
_WRITE_SIZE: Final = 65536
_COMMENT: Final = b":\n\n"


class EndpointHost(Protocol):
    """The parts of the ASGI app that an HTTP request needs; the app imports this module."""

    clients: ClientRegistry

    def connect(self, device: Device) -> ServerHttpConnection | Refusal: ...

    def find(self, id: str | None) -> ServerHttpConnection | Refusal: ...

    def identity(self, client: RemoteClient, peer: TcpPeer) -> Headers: ...


@attrs.define(eq=False)
class EndpointHandler(RequestResponse):
    """One HTTP request: of the Streamable HTTP profile, or for the server's state."""

    app: EndpointHost
    peer: TcpPeer
    token: str = attrs.field(default="", init=False)
    """Name of its token; see `Device`."""

    async def answer(self) -> None:
        with suppress(trio.BrokenResourceError):  # the client has disconnected
            await self._answer()

    async def _answer(self) -> None:
        path, method = self.scope["path"], self.scope["method"]
        if path in ("/health", "/ready", "/accepting"):
            await self._state(path, method)
            return
        if path != ENDPOINT_PATH:
            await self.refuse(Refusal(404, f"there is only {ENDPOINT_PATH}"))
            return
        if "transfer-encoding" in self.headers and "content-length" in self.headers:
            # RFC 9112 §6.1: request smuggling; an intermediary may have read another body.
            close = (("connection", "close"),)
            await self.refuse(Refusal(400, "Content-Length beside Transfer-Encoding", close))
            return
        if method == "OPTIONS":
            allowed = self.access.preflight(self.headers, self.peer)
            if isinstance(allowed, Refusal):
                await self.refuse(allowed)
            else:
                await self.respond(204, b"", allowed)
            return
        token = self.access.authenticate(self.headers, self.peer)
        if isinstance(token, Refusal):
            await self.refuse(token)
            return
        self.token = token
        handler = {"POST": self._post, "GET": self._get, "DELETE": self._delete}.get(method)
        if handler is None:
            await self.refuse(Refusal(405, "Method Not Allowed", (("allow", ALLOWED_METHODS),)))
        else:
            await handler()

    async def _state(self, path: str, method: str) -> None:
        if method not in ("GET", "HEAD"):
            await self.refuse(Refusal(405, "Method Not Allowed", (("allow", "GET, HEAD"),)))
        elif path != "/health" and not self.app.clients.ready:
            await self.refuse(Refusal(503 if path == "/ready" else 404, "not ready"))
        elif path != "/health":
            await self.respond(200, b"ready", PLAIN_TEXT)
        else:
            await self.respond(200, b"ok", PLAIN_TEXT)

    # -- POST --------------------------------------------------------------------------------------

    async def _post(self) -> None:
        if RECEIVED_HEADER in self.headers:
            await self._acknowledge()
            return
        if not is_json(self.headers.get("content-type", "")):
            await self.refuse(Refusal(415, "Content-Type must be application/json"))
            return
        body = await self.body(self.peer.address)
        if isinstance(body, Refusal):
            await self.refuse(body)
            return
        posted = parse_post(self.headers, body)
        if isinstance(posted, Refusal):
            await self.refuse(posted)
        elif posted.is_initialize:
            await self._initialize(posted)
        else:
            streamable = self._find()
            number = self.number(SEQUENCE_HEADER)
            refusal = (
                streamable
                if isinstance(streamable, Refusal)
                else await streamable.post(posted, number)
            )
            if refusal is not None:
                await self.refuse(refusal)
            else:
                await self.respond(202, b"", [])

    async def _initialize(self, posted: Any) -> None:
        """Create a connection, regardless of the headers, and answer `initialize`."""
        streamable = self.app.connect(Device(self.token, self.peer.address))
        if isinstance(streamable, Refusal):
            await self.refuse(streamable)
            return
        client = streamable.client
        streamable.is_resumable = RESUME_HEADER in self.headers
        # A chain of proxies sends requests to its successor, the client, before it responds: the
        # client needs the connection id first, to open the stream.
        early = posted.method != "initialize"
        if early:
            identity = self._identity(streamable)
            await self.start(200, [("content-type", "application/json"), *identity])
            await self.write(b"\n")
        answer: bytes | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.wait_disconnect, nursery.cancel_scope)
                answer = await streamable.initialize(posted)
                nursery.cancel_scope.cancel()
        finally:
            if answer is None or is_error(answer):
                client.end()
        if early:
            await self.write(answer or b"", last=True)
            return
        if answer is None:
            await self.refuse(Refusal(500, "agent closed before initialize response"))
            return
        identity = [] if is_error(answer) else self._identity(streamable)
        await self.respond(200, answer, [("content-type", "application/json"), *identity])

    def _identity(self, streamable: ServerHttpConnection) -> Headers:
        keep = [(RESUME_HEADER, f"{self.timeouts.keep:g}")] if streamable.is_resumable else []
        return [*self.app.identity(streamable.client, self.peer), *keep]

    async def _acknowledge(self) -> None:
        """Handle an acknowledgement of events by a conductor."""
        streamable, number = await self._find_or_refuse(), self.number(RECEIVED_HEADER)
        if streamable is None:
            return
        mailbox = streamable.mailboxes.known(self.headers.get(SESSION_HEADER))
        if mailbox is None:
            await self.refuse(Refusal(404, "Unknown Acp-Session-Id"))
            return
        try:
            mailbox.acknowledge(number or 0)
        except SequenceError as exc:
            await self.refuse(Refusal(400, str(exc)))
        else:
            await self.respond(202, b"", [])

    # -- GET ---------------------------------------------------------------------------------------

    async def _get(self) -> None:
        if not accepts_event_stream(self.headers.get("accept", "")):
            await self.refuse(Refusal(406, "client must accept text/event-stream"))
            return
        streamable = await self._find_or_refuse()
        if streamable is None:
            return
        try:
            received = self.number(_LAST_EVENT_HEADER) or 0
            mailbox = streamable.mailbox(self.headers.get(SESSION_HEADER), received)
        except SequenceError as exc:
            mailbox = Refusal(400, str(exc))
        if isinstance(mailbox, Refusal):
            await self.refuse(mailbox)
            return
        async with streamable.reading(mailbox), trio.open_nursery() as nursery:
            nursery.start_soon(self.wait_disconnect, nursery.cancel_scope)
            await self.start(200, [("content-type", "text/event-stream"), _NO_STORE])
            if streamable.is_resumable:
                await self._send_numbered_events(mailbox)
            else:
                await self._send_events(mailbox)
            nursery.cancel_scope.cancel()

    async def _send_events(self, mailbox: Mailbox) -> None:
        """Write messages as events until EOF, with comments while idle."""
        await self.write(_COMMENT)  # intermediaries must see an open stream
        while True:
            lines = None
            with trio.move_on_after(self.timeouts.keep_alive):
                lines = await mailbox.take()
            if lines is None:
                await self.write(_COMMENT)
            elif not lines:
                await self.write(b"", last=True)
                return
            else:
                await self._write_events(mailbox, deque(lines))

    async def _write_events(self, mailbox: Mailbox, lines: deque[bytes]) -> None:
        """Write events in parts; the parts not written when the client disconnects are put back."""
        try:
            while lines:
                # hypercorn accepts data after a disconnect without an error.
                await trio.lowlevel.checkpoint()
                part = bytearray()
                while lines and len(part) < _WRITE_SIZE:
                    part += b"data: %b\n\n" % lines.popleft()
                await self.write(bytes(part))
        finally:
            if lines:
                mailbox.put_back(list(lines))

    async def _send_numbered_events(self, mailbox: Mailbox) -> None:
        """Write numbered events to a conductor: the unacknowledged ones, then up to a window."""
        await self.write(_COMMENT)
        again = range(mailbox.sent.acknowledged + 1, mailbox.sent.last + 1)
        events = [mailbox.sent.get(number) for number in again]
        while True:
            if events:
                await self.write(b"".join([encode_event(e.text, e.number) for e in events]))
            events = []
            with trio.move_on_after(self.timeouts.keep_alive) as waiting:
                await mailbox.wait_for_space()
                events = await mailbox.take_numbered()
            if waiting.cancelled_caught:
                await self.write(_COMMENT)
            elif not events:
                await self.write(b"", last=True)
                return

    # -- DELETE ------------------------------------------------------------------------------------

    async def _delete(self) -> None:
        streamable = await self._find_or_refuse()
        if streamable is None:
            return
        streamable.client.end()
        await self.respond(202, b"", [])

    # ----------------------------------------------------------------------------------------------

    async def _find_or_refuse(self) -> ServerHttpConnection | None:
        """The connection; `None`: the request was refused."""
        streamable = self._find()
        if isinstance(streamable, Refusal):
            await self.refuse(streamable)
            return None
        return streamable

    def _find(self) -> ServerHttpConnection | Refusal:
        return self.app.find(self.headers.get(CONNECTION_HEADER))
