"""Client end of Streamable HTTP: a POST for each message, event streams for the other direction.

One POST is in flight at a time, which keeps the order. Responses overtake a POST that takes longer
than `_SLOW_POST`, and the POST of `initialize` at once: the server may be waiting for exactly that
response, as a proxy does during its initialization. A session's stream is opened before the first
message that names the session, or on the response that sets it up.

A response 401, 403, 407, 429 or 5xx ends the connection, and so does a 404 that is about the
connection. With another status only the message is refused: a request is answered with an error.

A conductor as the server states for how long it keeps a cut connection: events are numbered and
acknowledged, a stream continues after the last event received, and a POST without a response is
repeated with the same number, by which duplicates are dropped.
"""

from __future__ import annotations

from collections import deque
from http.cookiejar import CookieJar
from typing import Final

import attrs
import httpx2
import trio

from conductor.acp import CONNECTION_HEADER, SESSION_HEADER, SESSION_SETUP_METHODS
from conductor.jsonrpc.messages import INTERNAL_ERROR, encode_error
from conductor.network.address import RemoteAddress
from conductor.network.resumable_stream import RESUME_HEADER, SEQUENCE_HEADER
from conductor.network.tcp import warn_about_plaintext_credentials
from conductor.remote.http_connection import (
    JSON_TYPE,
    ClientHttpConnection,
    HttpClientPool,
)
from conductor.remote.http_streams import SessionStreams, is_header_value
from conductor.remote.message_meta import MessageMeta, SessionTracker, connection_id_of, read_meta
from conductor.remote.transport import RemoteTransport, refusal_message, server_text

__all__ = ["run_transport"]

_ID_NOT_A_HEADER: Final = "the session id is not a valid HTTP header value: use ws://"
_MAX_QUEUED_BYTES: Final = 1024 * 1024
"""Queued bytes above which no more lines are read from the chain."""
_SLOW_POST: Final = 0.5
"""Seconds after which responses overtake a POST in flight."""
_DISCONNECT_TIMEOUT: Final = 1.0


async def run_transport(
    transport: RemoteTransport, address: RemoteAddress, cookies: CookieJar, ping_timeout: float
) -> None:
    """Run a connection to the endpoint until it ends. Raises `Unreachable` if it cannot be opened;
    what ends it later is given to `transport` (`end`, `lost`)."""
    warn_about_plaintext_credentials(address)
    clients = HttpClientPool(address, cookies, ping_timeout, transport.max_message_bytes)
    await clients.open()
    requests, sessions = ClientHttpConnection(transport, address, clients), SessionTracker()
    try:
        async with trio.open_nursery() as nursery:
            streams = SessionStreams(transport, requests, sessions, nursery)
            posts = _PostQueue(transport, requests, streams, sessions, nursery)
            nursery.start_soon(posts.sort)
            nursery.start_soon(streams.watch, ping_timeout)
            await posts.post_in_order()
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_DISCONNECT_TIMEOUT, shield=True):
            await requests.send_delete()
        with trio.move_on_after(_DISCONNECT_TIMEOUT, shield=True):
            await clients.short.aclose()
    transport.end(f"closed its connection at {transport.location}")


@attrs.define(eq=False)
class _PostQueue:
    """Queue of outgoing messages."""

    transport: RemoteTransport
    requests: ClientHttpConnection
    streams: SessionStreams
    sessions: SessionTracker
    nursery: trio.Nursery
    _posted: int = attrs.field(default=0, init=False)
    """Number of messages posted to a conductor."""
    _waiting: deque[MessageMeta] = attrs.field(factory=deque, init=False)
    _waiting_size: int = attrs.field(default=0, init=False)
    _at_end: bool = attrs.field(default=False, init=False)
    _moved: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    async def sort(self) -> None:
        """Queue the lines of the chain, waiting while the queue is full."""
        while lines := await self.transport.lines.receive():
            for meta in map(read_meta, lines):
                self._waiting.append(meta)
                self._waiting_size += len(meta.line)
                self._moved.unpark_all()
                while self._waiting_size > _MAX_QUEUED_BYTES:
                    await self._moved.park()
        self._at_end = True
        self._moved.unpark_all()

    async def post_in_order(self) -> None:
        """Post the queued messages one at a time, until EOF."""
        while True:
            while not self._waiting:
                if self._at_end:
                    return
                await self._moved.park()
            meta = self._waiting.popleft()
            async with trio.open_nursery() as nursery:
                if self.requests.connection is None:
                    nursery.start_soon(self._post_responses_early, 0.0)
                    await self._initialize(meta)
                else:
                    nursery.start_soon(self._post_responses_early, _SLOW_POST)
                    await self._post(meta)
                nursery.cancel_scope.cancel()
            self._taken(meta)

    async def _post_responses_early(self, after: float) -> None:
        await trio.sleep(after)
        while True:
            for meta in [each for each in self._waiting if each.kind == "response"]:
                self._waiting.remove(meta)
                self._taken(meta)
                self.nursery.start_soon(self._post, meta)
            await self._moved.park()

    def _taken(self, meta: MessageMeta) -> None:
        self._waiting_size -= len(meta.line)
        self._moved.unpark_all()

    async def _initialize(self, meta: MessageMeta) -> None:
        if not meta.initializes:
            await self._refuse(meta, "the connection is not initialized", b"")
            return
        try:
            async with self.requests.clients.short.stream(
                "POST",
                self.requests.address.url,
                headers={"Content-Type": JSON_TYPE, "Accept": JSON_TYPE, RESUME_HEADER: "1"},
                content=meta.line,
                extensions=self.requests.extensions,
            ) as response:
                self.transport.reached = True
                status = response.status_code
                self.requests.backoff.keep = _parse_seconds(response.headers.get(RESUME_HEADER))
                if status == 200 and (id := response.headers.get(CONNECTION_HEADER)) is not None:
                    # A proxy sends requests to its successor over the stream before it responds.
                    self._connected(id)
                body = await response.aread()
        except httpx2.HTTPError as exc:
            self.requests.fail(exc)
            return
        if status != 200:
            self.transport.end(refusal_message(self.requests.address, status, body))
            return
        if self.requests.connection is None and (id := connection_id_of(body)) is not None:
            self._connected(id)
        if self.requests.connection is None and b'"result"' in body:
            self.transport.lost("it did not give the connection an id: is it an ACP server?")
            return
        await self.streams.deliver([body.strip()])

    def _connected(self, id: str) -> None:
        self.requests.connection = id
        self.streams.open(None)

    async def _post(self, meta: MessageMeta) -> None:
        session = self.sessions.posts(meta)
        if session is not None and not is_header_value(session):
            await self._refuse(meta, _ID_NOT_A_HEADER, b"")
            return
        if session is not None and meta.kind != "response":
            self.streams.open(session)
        number = {}
        if self.requests.is_conductor:
            self._posted += 1
            number = {SEQUENCE_HEADER: str(self._posted)}
        headers = number if session is None else {**number, SESSION_HEADER: session}
        try:
            response = await self.requests.request_with_retry("POST", headers, meta.line)
            if (
                response.status_code == 404
                and session is not None
                and meta.method in SESSION_SETUP_METHODS
            ):
                # Some servers know no session before it is set up.
                response = await self.requests.request_with_retry("POST", number, meta.line)
                session = None
        except httpx2.HTTPError as exc:
            self.requests.fail(exc)
            return
        status, body = response.status_code, response.content
        forgotten = status == 404 and (
            session is None or CONNECTION_HEADER.encode() in body.lower()
        )
        if status == 200 and body:
            await self.streams.deliver([body])
        elif response.is_success:
            return
        elif status in (401, 403, 407, 429) or status >= 500 or forgotten:
            self.transport.lost(f"it answered {status}{server_text(body)}")
        else:
            await self._refuse(meta, f"{self.transport.location} answered {status}", body)

    async def _refuse(self, meta: MessageMeta, reason: str, body: bytes) -> None:
        """Answer a request that the server refused; the connection stays open. Other messages are
        dropped."""
        if meta.kind != "request":
            return
        error = encode_error(
            INTERNAL_ERROR, f"Internal error: {reason}", reason + server_text(body)
        )
        await self.streams.deliver(
            [b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (meta.id, bytes(error))]
        )


def _parse_seconds(text: str | None) -> float:
    """Value of the `Acp-Conductor-Resume` header; 0 if absent or invalid."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
