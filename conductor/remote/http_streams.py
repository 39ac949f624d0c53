"""Event streams from a Streamable HTTP server: one for the connection, one per session.

The streams are read concurrently: messages are ordered within a stream, hence within a session.
A stream that ends is opened again, since intermediaries end long requests and a server keeps
messages for a stream until it is read. One that ends within a second, or is cut, ends the
connection; with a conductor, it continues after the last event received.

A session's stream is closed when the session has been closed or deleted and no request about it is
in flight. Servers limit the number of open streams; a conductor sends messages of the sessions
beyond the limit on the connection's stream.
"""

from __future__ import annotations

import re
from contextlib import aclosing, suppress
from typing import Final

import attrs
import httpx2
import trio

from conductor.acp import CONNECTION_HEADER, SESSION_HEADER
from conductor.errors import ConnectionClosed
from conductor.network.resumable_stream import RECEIVED_HEADER
from conductor.network.sequence_numbers import NumberedFrame, ReceiveWindow, SequenceError
from conductor.network.sse import EventDecoder, EventTooLarge, ServerSentEvent
from conductor.network.tcp import is_connection_refused
from conductor.remote.http_connection import (
    RETRY_STATUSES,
    ClientHttpConnection,
)
from conductor.remote.message_meta import SessionTracker, read_meta
from conductor.remote.transport import RemoteTransport

__all__ = ["SessionStreams", "is_header_value"]

is_header_value: Final = re.compile(r"[!-~]([ -~]*[!-~])?").fullmatch
"""Whether a session id is a valid HTTP header value."""
_LAST_EVENT_HEADER: Final = "Last-Event-ID"
_EVENT_STREAM_TYPE: Final = "text/event-stream"
_MIN_STREAM_SECONDS: Final = 1.0
"""Seconds within which a stream that ends is not opened again."""
_RETRY_SECONDS: Final = 1.0
"""Seconds before the next attempt to open a stream that the server cannot open yet."""
_MAX_DIGITS: Final = 18
"""Maximum digits of an event's number."""
_MAX_CONFLICTS: Final = 10
"""Attempts to open a stream that has a reader according to the server: the previous one, before
the server has detected its end."""
_NO_STATUS: Final = 0
"""In place of a status: no response, or its body was cut."""


@attrs.define(eq=False)
class SessionStreams:
    """Event streams of one connection, each read in a task of `nursery`."""

    transport: RemoteTransport
    requests: ClientHttpConnection
    sessions: SessionTracker
    nursery: trio.Nursery
    _events: dict[str | None, ReceiveWindow] = attrs.field(factory=dict, init=False)
    """Received events by session; `None` is the connection's stream."""
    _open: dict[str | None, trio.CancelScope] = attrs.field(factory=dict, init=False)
    """Cancel scope of each stream that is open or being opened, by session."""
    _unread: int = attrs.field(default=0, init=False)
    """Number of streams with messages that the chain has not taken yet."""

    def open(self, session: str | None) -> None:
        """Start to read a session's stream (`None`: the connection's), unless it is being read."""
        if session not in self._open:
            self._open[session] = trio.CancelScope()
            self.nursery.start_soon(self._keep, session, self._open[session])

    async def deliver(self, lines: list[bytes]) -> None:
        """Deliver messages of the server, and open the streams of the sessions that they set up."""
        for line in lines:
            session = self.sessions.record_received(read_meta(line))
            if session is not None and is_header_value(session):
                self.open(session)
        self._unread += 1
        try:
            await self.transport.lines.send(lines)
        finally:
            self._unread -= 1
        for session in self.sessions.take_ended():
            self._close(session)

    async def watch(self, ping_timeout: float) -> None:
        """Send `OPTIONS` to a server that is silent for half of `ping_timeout`; fail after it."""
        half = ping_timeout / 2
        asked = trio.current_time()
        while True:
            await trio.sleep_until(max(self.requests.last_received, asked) + half)
            if (
                self.requests.connection is None
                or self._unread
                or trio.current_time() < self.requests.last_received + half
            ):
                asked = trio.current_time()
                continue
            asked = trio.current_time()
            try:
                with trio.fail_after(half):
                    await self.requests.request("OPTIONS", {})
            except httpx2.HTTPError as exc:
                if self.requests.is_conductor:
                    self.requests.cut(self.nursery)
                    continue
                self.requests.fail(exc)
                return
            except trio.TooSlowError:
                if self.requests.is_conductor:
                    self.requests.cut(self.nursery)
                    continue
                self.transport.lost(f"it did not answer within {ping_timeout:g} s (ping_timeout)")
                return

    def _close(self, session: str) -> None:
        """Close the stream of a session that has ended."""
        if (scope := self._open.pop(session, None)) is not None:
            scope.cancel()
        if (incoming := self._events.pop(session, None)) is not None:
            self.nursery.start_soon(self._acknowledge_all, session, incoming.taken)

    async def _keep(self, session: str | None, scope: trio.CancelScope) -> None:
        with scope:
            await self._read_again(session)
            if session is not None and self._open.get(session) is scope:
                del self._open[session]  # opened again when the session is set up

    async def _read_again(self, session: str | None) -> None:
        """Read a stream, opening it again as often as needed; return when it is not needed."""
        taken = 0
        while True:
            began = trio.current_time()
            status, later = _NO_STATUS, False
            error: httpx2.HTTPError = httpx2.ReadTimeout("it did not answer")
            try:
                with self.requests.attempt():
                    async with self.requests.clients.new() as client:
                        status, later = await self._read(client, session)
            except httpx2.HTTPError as exc:
                error = exc
            except SequenceError as exc:
                self.transport.lost(f"it cannot be resumed: {exc}")
                return
            except EventTooLarge:
                limit = self.transport.max_message_bytes
                self.transport.lost(f"it sent a message of more than {limit} bytes")
                return
            except ConnectionClosed:
                return
            if session is not None and status == 404:
                return
            if session is not None and status == 200 and self.sessions.may_end(session):
                return
            if session is not None and status == 409 and (taken := taken + 1) <= _MAX_CONFLICTS:
                await trio.sleep(_RETRY_SECONDS)
                continue
            if session is not None and status == 429 and later:
                await trio.sleep(_RETRY_SECONDS)
                continue
            if session is not None and status == 429 and self.requests.is_conductor:
                await trio.sleep_forever()  # its messages come on the connection's stream
            may_go_on = self.requests.is_conductor and status in RETRY_STATUSES | {200, _NO_STATUS}
            refused = status == _NO_STATUS and is_connection_refused(error)
            if may_go_on and await self.requests.backoff.wait_to_retry(refused=refused):
                continue
            if status == _NO_STATUS:
                self.requests.fail(error)
                return
            if status != 200 or trio.current_time() - began < _MIN_STREAM_SECONDS:
                why = "ended" if status == 200 else f"was refused: {status}"
                self.transport.lost(f"its stream of events {why}")
                return

    async def _read(self, client: httpx2.AsyncClient, session: str | None) -> tuple[int, bool]:
        """Read a stream to its end. Returns the status, and whether it may be opened later."""
        assert self.requests.connection is not None
        headers = {
            "Accept": _EVENT_STREAM_TYPE,
            "Cache-Control": "no-store",
            CONNECTION_HEADER: self.requests.connection,
        }
        if session is not None:
            headers[SESSION_HEADER] = session
        if self.requests.is_conductor:
            known = self._events.get(session)
            headers[_LAST_EVENT_HEADER] = "0" if known is None else str(known.taken)
            await self.transport.lines.send(())  # the rest of a cancelled send
        reader = EventDecoder(self.transport.max_message_bytes)
        async with client.stream(
            "GET", self.requests.address.url, headers=headers, extensions=self.requests.extensions
        ) as response:
            self.requests.last_received = trio.current_time()
            if response.status_code != 200:
                return response.status_code, "retry-after" in response.headers
            self.requests.backoff.reset()
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    self.requests.last_received = trio.current_time()
                    lines = self._new_messages(reader.feed(chunk), session)
                    if lines:
                        await self.deliver(lines)
                        await trio.lowlevel.checkpoint_if_cancelled()  # may be closed now
        return 200, False

    def _new_messages(self, events: list[ServerSentEvent], session: str | None) -> list[bytes]:
        """The events that are not duplicates; schedules their acknowledgement to a conductor."""
        if not self.requests.is_conductor:
            return [event.data for event in events if event.data]
        if not events:
            return []
        numbered, now = [_numbered_frame(event) for event in events], trio.current_time()
        # The server may remember the numbers of a session that is set up again.
        first = 1 if session is None else numbered[0].number
        incoming = self._events.setdefault(session, ReceiveWindow(taken=first - 1))
        lines = []
        for event in numbered:
            incoming.put(event)
            if (line := incoming.take(now)) is not None:
                lines.append(line)
        if (due := incoming.acknowledgement(now)) is not None:
            self.nursery.start_soon(self._acknowledge, session, due.number)
        return lines

    async def _acknowledge(self, session: str | None, number: int) -> None:
        headers = {} if session is None else {SESSION_HEADER: session}
        with (
            self.requests.attempt(),
            suppress(httpx2.HTTPError),
        ):  # sent again with the next
            await self.requests.request("POST", {**headers, RECEIVED_HEADER: str(number)}, b"")

    async def _acknowledge_all(self, session: str, number: int) -> None:
        """Acknowledge the last event of a closed session: the server drops its mailbox."""
        with suppress(httpx2.HTTPError):
            await self.requests.request_with_retry(
                "POST", {SESSION_HEADER: session, RECEIVED_HEADER: str(number)}, b""
            )


def _numbered_frame(event: ServerSentEvent) -> NumberedFrame:
    number = event.id or ""
    if not number.isascii() or not number.isdecimal() or len(number) > _MAX_DIGITS:
        raise SequenceError("an event has no numeric id")
    return NumberedFrame(int(number), event.data)
