"""What waits for the streams of a Streamable HTTP client, within bounds.

A stream may open long after there is something to tell on it, or never; what waits for all streams
of a client is counted together, and whoever feeds them waits when it is too much. So a client that
does not read slows its own chain down, and loses nothing.

For a client of ours what was sent waits, too, until the client says that it has it: its numbers are
the ids of the events, and a stream that is opened again goes on behind the last one.

A mailbox is dropped once nothing waits in it, no stream reads it, and its numbers, if it has any,
belong to a session that is not open any more. So a connection may have any number of sessions in
its life; only the streams that are open at the same time are limited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
import trio

from conductor.network.sequence_numbers import NumberedFrame, SendWindow

__all__ = ["Mailbox", "Mailboxes"]

_LINE_OVERHEAD = 100
"""What a line takes beside its bytes."""


@attrs.define(eq=False)
class Mailbox:
    """The lines for one stream; one reader at a time."""

    of: Mailboxes
    session: str | None = None
    """None: it is the connection's."""
    has_reader: bool = False
    """A stream reads it."""
    readers: int = 0
    """Streams that read it, or wait until the one before them has stopped."""
    unread: bool = False
    """It was made for a session that was not open, and no stream has read it yet."""
    sent: SendWindow = attrs.field(factory=SendWindow, init=False)
    """Of a client of ours: what it was sent and has not acknowledged."""
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Ends whoever reads it."""
    reader_left: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when whoever read it does so no more."""
    _acknowledged: trio.lowlevel.ParkingLot = attrs.field(
        factory=trio.lowlevel.ParkingLot, init=False
    )
    _lines: deque[bytes] = attrs.field(factory=deque, init=False)
    _more: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def is_idle(self) -> bool:
        """Whether it can be dropped, and a new one take its place later."""
        if self.readers or self._lines or self.sent.acknowledged < self.sent.last:
            return False
        return not self.sent.last or not self.of.is_open(self.session)

    def resume_after(self, number: int) -> None:
        """The client opens a stream, and has everything up to this number. Raises `SequenceError`.

        A new mailbox takes over the number: the client may still count from one that was dropped.
        """
        if self.session is not None and not self.sent.last:
            self.sent = SendWindow(last=number, acknowledged=number)
        else:
            self.acknowledge(number)

    def take_unread(self) -> list[bytes]:
        """What the client has not got: sent and not acknowledged, then what waits."""
        numbers = range(self.sent.acknowledged + 1, self.sent.last + 1)
        lines = [*(self.sent.get(number).text for number in numbers), *self._lines]
        self._lines.clear()
        self.sent = SendWindow()
        self.of.count(-sum(map(_size, lines)))
        return lines

    async def take(self) -> list[bytes]:
        """Everything that waits, at least one line; `[]` when no more will come."""
        while not self._lines:
            if self.of.ended:
                return []
            await self._more.wait()
        lines = list(self._lines)
        self._lines.clear()
        self._more = trio.Event()
        self.of.count(-sum(map(_size, lines)))
        return lines

    async def room(self) -> None:
        """Wait while more was sent and not acknowledged than may be."""
        while self.sent.full:
            await self._acknowledged.park()

    async def take_numbered(self) -> list[NumberedFrame]:
        """Like `take`, but what is taken is kept until it is acknowledged."""
        lines = await self.take()
        self.of.count(sum(map(_size, lines)))
        return [self.sent.get(self.sent.put(line)) for line in lines]

    def acknowledge(self, number: int) -> None:
        """The client has everything up to this number. Raises `SequenceError`."""
        before = self.sent.acknowledged, self.sent.size
        if number > before[0]:
            self.sent.acknowledge(number)
            lines = self.sent.acknowledged - before[0]
            self.of.count(self.sent.size - before[1] - lines * _LINE_OVERHEAD)
            self._acknowledged.unpark_all()
            self.of.drop_if_idle(self)

    def put(self, line: bytes) -> None:
        self._lines.append(line)
        self.of.count(_size(line))
        self._more.set()

    def put_back(self, lines: list[bytes]) -> None:
        """What was taken and could not be sent is the first to be taken again."""
        self._lines.extendleft(reversed(lines))
        self.of.count(sum(map(_size, lines)))
        self._more.set()

    def wake(self) -> None:
        self._more.set()


@attrs.define(eq=False)
class Mailboxes:
    """Of one client: the connection's, and those of sessions for which something waits or is read.

    `is_open` tells whether the client has a session.
    """

    bound: int
    most: int
    """Session streams that may be open at a time; also, mailboxes that are `unread`."""
    is_open: Callable[[str | None], bool] = lambda _: False
    ended: bool = attrs.field(default=False, init=False)
    connection: Mailbox = attrs.field(init=False)
    sessions: dict[str, Mailbox] = attrs.field(factory=dict, init=False)
    _closed: dict[str, None] = attrs.field(factory=dict, init=False)
    """The sessions that were closed last, oldest first; `most` of them."""
    _streams: int = attrs.field(default=0, init=False)
    """Session streams that are open."""
    _unread: int = attrs.field(default=0, init=False)
    """Mailboxes that are `unread`."""
    waiting: int = attrs.field(default=0, init=False)
    """Bytes that wait in all of them."""
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self.connection = Mailbox(self)

    def of(self, session: str | None) -> Mailbox:
        """Where a message goes. What is still said about a session that was closed, and whose
        stream is gone, goes to the connection's: no stream of the session may ever open again."""
        if session is None:
            return self.connection
        mailbox = self.sessions.get(session)
        if mailbox is not None:
            return mailbox
        is_open = self.is_open(session)
        if session in self._closed or not (is_open or self._unread < self.most):
            return self.connection
        mailbox = self.sessions[session] = Mailbox(self, session, unread=not is_open)
        self._unread += mailbox.unread
        return mailbox

    def for_stream(self, session: str | None) -> Mailbox | None:
        """The mailbox that a new stream is to read; None: too many streams are open."""
        mailbox = self.known(session)
        if session is None or (mailbox is not None and mailbox.readers):
            return mailbox
        if self._streams >= self.most:
            return None
        return mailbox or Mailbox(self, session)

    def add_reader(self, mailbox: Mailbox) -> None:
        """A stream is opened for this mailbox."""
        mailbox.readers += 1
        if mailbox.session is None or mailbox.readers > 1:
            return
        self.sessions[mailbox.session] = mailbox
        self._streams += 1
        self._unread -= mailbox.unread
        mailbox.unread = False

    def remove_reader(self, mailbox: Mailbox) -> None:
        mailbox.readers -= 1
        if mailbox.session is not None and not mailbox.readers:
            self._streams -= 1
            self.drop_if_idle(mailbox)

    def known(self, session: str | None) -> Mailbox | None:
        """The mailbox of a session, if there is one now."""
        return self.connection if session is None else self.sessions.get(session)

    def streaming(self, session: str) -> bool:
        """Whether a stream of the session is open."""
        return session in self.sessions and self.sessions[session].has_reader

    def move_to_connection(self, session: str) -> None:
        """The session has no stream: what waits for it goes to the connection's."""
        mailbox = self.sessions.get(session)
        if mailbox is not None:
            for line in mailbox.take_unread():
                self.connection.put(line)
            self.drop_if_idle(mailbox)

    def opened(self, session: str) -> None:
        """The session is being set up, perhaps again."""
        self._closed.pop(session, None)

    def closed(self, session: str) -> None:
        """The session was closed or deleted."""
        self._closed[session] = None
        if len(self._closed) > self.most:
            del self._closed[next(iter(self._closed))]
        if session in self.sessions:
            self.drop_if_idle(self.sessions[session])

    def drop_if_idle(self, mailbox: Mailbox) -> None:
        session = mailbox.session
        if session is not None and self.sessions.get(session) is mailbox and mailbox.is_idle:
            del self.sessions[session]
            self._unread -= mailbox.unread

    async def room(self) -> None:
        """Wait while more waits than may."""
        while self.waiting > self.bound and not self.ended:
            await self._room.park()

    def end(self) -> None:
        """No more will come; what waits may be read."""
        self.ended = True
        self._room.unpark_all()
        for mailbox in (self.connection, *self.sessions.values()):
            mailbox.wake()

    def count(self, change: int) -> None:
        self.waiting += change
        if change < 0:
            self._room.unpark_all()


def _size(line: bytes) -> int:
    return len(line) + _LINE_OVERHEAD
