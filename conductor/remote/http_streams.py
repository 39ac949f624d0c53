"""What a server says over HTTP: streams of events, one for the connection and one for each session.

They are read side by side: the order of messages is kept within a stream, and so within a session.
A stream that ends is opened again, because there may be somebody between who ends long requests,
and a server keeps what it has for a stream until somebody reads it; one that ends at once, or is
cut in the middle, ends the connection. With a server of ours it goes on behind the last event that
arrived.

The stream of a session is closed here once the session was closed or deleted, and nothing that was
asked about it is open any more. A server limits how many are open at a time; one of ours tells of a
session beyond that on the connection's stream.
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
"""Whether HTTP lets the id of a session be in a header."""
_LAST_EVENT_HEADER: Final = "Last-Event-ID"
_EVENT_STREAM_TYPE: Final = "text/event-stream"
_MIN_STREAM_SECONDS: Final = 1.0
"""A stream that ends within so many seconds is not opened again."""
_RETRY_SECONDS: Final = 1.0
"""Seconds until a stream is asked for again that the server cannot open yet."""
_MAX_CONFLICTS: Final = 10
"""Times that a stream is asked for while the server says that it has a reader: the one before, of
which it has not noticed yet that it was closed."""
_NO_STATUS: Final = 0
"""In place of a status: there was none, or what followed was cut."""


@attrs.define(eq=False)
class SessionStreams:
    """The streams of one connection, read in tasks of `nursery`."""

    transport: RemoteTransport
    requests: ClientHttpConnection
    sessions: SessionTracker
    nursery: trio.Nursery
    _events: dict[str | None, ReceiveWindow] = attrs.field(factory=dict, init=False)
    """What has come, by session."""
    _open: dict[str | None, trio.CancelScope] = attrs.field(factory=dict, init=False)
    """SessionTracker whose stream is open, or is being opened; what ends it."""
    _unread: int = attrs.field(default=0, init=False)
    """SessionStreams whose messages wait for us."""

    def open(self, session: str | None) -> None:
        """Read this session's stream, or the connection's, if that is not done yet."""
        if session not in self._open:
            self._open[session] = trio.CancelScope()
            self.nursery.start_soon(self._keep, session, self._open[session])

    async def deliver(self, lines: list[bytes]) -> None:
        """Hand on messages of the server's; the sessions that they name have streams now."""
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
        """Ask a server that is silent whether it is there: any answer will do."""
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
        """Nothing more will come for this session."""
        if (scope := self._open.pop(session, None)) is not None:
            scope.cancel()
        if (incoming := self._events.pop(session, None)) is not None:
            self.nursery.start_soon(self._acknowledge_all, session, incoming.taken)

    async def _keep(self, session: str | None, scope: trio.CancelScope) -> None:
        with scope:
            await self._read_again(session)
            if session is not None and self._open.get(session) is scope:
                del self._open[session]  # it is opened when the session is set up

    async def _read_again(self, session: str | None) -> None:
        """Read a stream, and again when it has ended; return when it is not to be read now."""
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
                await trio.sleep_forever()  # everything is told on the connection's stream
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
        """The status that a stream was answered with, and whether it may be opened later."""
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
            await self.transport.lines.send(())  # what was cut short
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
                        await trio.lowlevel.checkpoint_if_cancelled()  # it may have ended this
        return 200, False

    def _new_messages(self, events: list[ServerSentEvent], session: str | None) -> list[bytes]:
        """The messages that are new, and what is to be said about them to a server of ours."""
        if not self.requests.is_conductor:
            return [event.data for event in events if event.data]
        if not events:
            return []
        numbered, now = [_numbered_frame(event) for event in events], trio.current_time()
        # A session may be set up again whose numbers the server remembers, and we do not.
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
        with self.requests.attempt(), suppress(httpx2.HTTPError):  # the next one says it, too
            await self.requests.request("POST", {**headers, RECEIVED_HEADER: str(number)}, b"")

    async def _acknowledge_all(self, session: str, number: int) -> None:
        """So that the server can forget what it has kept for a session that is closed."""
        with suppress(httpx2.HTTPError):
            await self.requests.request_with_retry(
                "POST", {SESSION_HEADER: session, RECEIVED_HEADER: str(number)}, b""
            )


def _numbered_frame(event: ServerSentEvent) -> NumberedFrame:
    if event.id is None or not event.id.isdecimal():
        raise SequenceError("an event has no number")
    return NumberedFrame(int(event.id), event.data)
