"""Bounded message queues (mailboxes) for the event streams of one client.

A stream may open long after its first message, or never. The queued bytes of all streams of a
client are counted together. The reader of the chain awaits `Mailboxes.wait_for_space` after each
batch of lines, which returns when the bytes are within the limit: a client that does not read slows
down its own chain and loses nothing.

For a conductor, events are numbered and kept until acknowledged; a new stream continues after the
last acknowledged event.

A mailbox is dropped when it is empty, has no reader and, if numbered, its session is closed. The
number of sessions over the life of a connection is unlimited; only concurrent streams are limited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
import trio

from conductor.bounded_dict import BoundedDict
from conductor.network.sequence_numbers import NumberedFrame, SendWindow

__all__ = ["Mailbox", "Mailboxes"]

_LINE_OVERHEAD = 100
"""Bytes counted for a line besides its length."""


@attrs.define(eq=False)
class Mailbox:
    """Queue of lines for one stream; one reader at a time."""

    owner: Mailboxes
    session: str | None = None
    """`None`: the connection's mailbox."""
    has_reader: bool = False
    """Whether a stream is reading it."""
    readers: int = 0
    """Streams that read it or wait for the previous reader to stop."""
    is_unclaimed: bool = False
    """Whether it was created for a session that was not open, and no stream has read it yet."""
    sent: SendWindow = attrs.field(factory=SendWindow, init=False)
    """Unacknowledged events, for a conductor."""
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancels the reader."""
    reader_left: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the reader has stopped."""
    _acknowledged: trio.lowlevel.ParkingLot = attrs.field(
        factory=trio.lowlevel.ParkingLot, init=False
    )
    _lines: deque[bytes] = attrs.field(factory=deque, init=False)
    _more: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def is_idle(self) -> bool:
        """Whether it can be dropped (and be created again later)."""
        if self.readers or self._lines or self.sent.acknowledged < self.sent.last:
            return False
        return not self.sent.last or not self.owner.is_open(self.session)

    def resume_after(self, number: int) -> None:
        """Continue after the event with this number. Raises `SequenceError`.

        A session's mailbox without numbered events adopts the number: the client may count from a
        mailbox that was dropped. The connection's mailbox is never dropped.
        """
        if self.session is not None and not self.sent.last:
            self.sent = SendWindow(last=number, acknowledged=number)
        else:
            self.acknowledge(number)

    def take_undelivered(self) -> list[bytes]:
        """Remove and return all undelivered lines: unacknowledged ones first."""
        numbers = range(self.sent.acknowledged + 1, self.sent.last + 1)
        lines = [*(self.sent.get(number).text for number in numbers), *self._lines]
        self._lines.clear()
        self.sent = SendWindow()
        self.owner.count(-sum(map(_size, lines)))
        return lines

    async def take(self) -> list[bytes]:
        """Wait for lines and take all of them; `[]` at EOF."""
        while not self._lines:
            if self.owner.ended:
                return []
            await self._more.wait()
        lines = list(self._lines)
        self._lines.clear()
        self._more = trio.Event()
        self.owner.count(-sum(map(_size, lines)))
        return lines

    async def wait_for_space(self) -> None:
        """Wait while the send window is full."""
        while self.sent.full:
            await self._acknowledged.park()

    async def take_numbered(self) -> list[NumberedFrame]:
        """Like `take`, numbered; the lines are kept until acknowledged."""
        lines = await self.take()
        self.owner.count(sum(map(_size, lines)))
        return [self.sent.get(self.sent.put(line)) for line in lines]

    def acknowledge(self, number: int) -> None:
        """Drop the events up to this number; a number below those acknowledged is ignored. Raises
        `SequenceError` for one that was not sent."""
        before = self.sent.acknowledged, self.sent.size
        if number > before[0]:
            self.sent.acknowledge(number)
            lines = self.sent.acknowledged - before[0]
            self.owner.count(self.sent.size - before[1] - lines * _LINE_OVERHEAD)
            self._acknowledged.unpark_all()
            self.owner.drop_if_idle(self)

    def put(self, line: bytes) -> None:
        self._lines.append(line)
        self.owner.count(_size(line))
        self._more.set()

    def put_back(self, lines: list[bytes]) -> None:
        """Put lines that could not be sent back to the front."""
        self._lines.extendleft(reversed(lines))
        self.owner.count(sum(map(_size, lines)))
        self._more.set()

    def wake(self) -> None:
        self._more.set()


@attrs.define(eq=False)
class Mailboxes:
    """The mailboxes of one client: the connection's, and those of its sessions.

    `max_bytes`: queued bytes above which `wait_for_space` waits; `is_open`: whether a session is
    open.
    """

    max_bytes: int
    max_streams: int
    """Maximum number of open session streams, and of `is_unclaimed` mailboxes."""
    is_open: Callable[[str | None], bool] = lambda _: False
    ended: bool = attrs.field(default=False, init=False)
    connection: Mailbox = attrs.field(init=False)
    sessions: dict[str, Mailbox] = attrs.field(factory=dict, init=False)
    _closed: BoundedDict[str, None] = attrs.field(init=False)
    """The last `max_streams` closed sessions, oldest first."""
    _streams: int = attrs.field(default=0, init=False)
    """Number of open session streams."""
    _unclaimed: int = attrs.field(default=0, init=False)
    """Number of `is_unclaimed` mailboxes."""
    waiting: int = attrs.field(default=0, init=False)
    """Queued and unacknowledged bytes in all mailboxes."""
    _space: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self.connection = Mailbox(self)
        self._closed = BoundedDict(self.max_streams)

    def mailbox_for(self, session: str | None) -> Mailbox:
        """The mailbox for a message about this session. For a closed session without a stream it is
        the connection's, since no stream of the session may ever open again."""
        if session is None:
            return self.connection
        mailbox = self.sessions.get(session)
        if mailbox is not None:
            return mailbox
        is_open = self.is_open(session)
        if session in self._closed or not (is_open or self._unclaimed < self.max_streams):
            return self.connection
        mailbox = self.sessions[session] = Mailbox(self, session, is_unclaimed=not is_open)
        self._unclaimed += mailbox.is_unclaimed
        return mailbox

    def for_stream(self, session: str | None) -> Mailbox | None:
        """The mailbox for a new stream; `None`: too many streams are open. A new mailbox receives
        messages only after `add_reader`."""
        mailbox = self.known(session)
        if session is None or (mailbox is not None and mailbox.readers):
            return mailbox
        if self._streams >= self.max_streams:
            return None
        return mailbox or Mailbox(self, session)

    def add_reader(self, mailbox: Mailbox) -> None:
        """Register a stream of this mailbox."""
        mailbox.readers += 1
        if mailbox.session is None or mailbox.readers > 1:
            return
        self.sessions[mailbox.session] = mailbox
        self._streams += 1
        self._unclaimed -= mailbox.is_unclaimed
        mailbox.is_unclaimed = False

    def remove_reader(self, mailbox: Mailbox) -> None:
        mailbox.readers -= 1
        if mailbox.session is not None and not mailbox.readers:
            self._streams -= 1
            self.drop_if_idle(mailbox)

    def known(self, session: str | None) -> Mailbox | None:
        """The existing mailbox of a session (`None`: the connection's), or `None`."""
        return self.connection if session is None else self.sessions.get(session)

    def streaming(self, session: str) -> bool:
        """Whether a stream of the session is open."""
        return session in self.sessions and self.sessions[session].has_reader

    def move_to_connection(self, session: str) -> None:
        """Move the lines of a session without a stream to the connection's mailbox."""
        mailbox = self.sessions.get(session)
        if mailbox is not None:
            for line in mailbox.take_undelivered():
                self.connection.put(line)
            self.drop_if_idle(mailbox)

    def opened(self, session: str) -> None:
        """Record that the session is being set up, perhaps again."""
        self._closed.pop(session, None)

    def closed(self, session: str) -> None:
        """Record that the session was closed or deleted."""
        self._closed[session] = None
        if session in self.sessions:
            self.drop_if_idle(self.sessions[session])

    def is_closed(self, session: str) -> bool:
        """Whether it is one of the sessions that were closed or deleted last."""
        return session in self._closed

    def drop_if_idle(self, mailbox: Mailbox) -> None:
        session = mailbox.session
        if session is not None and self.sessions.get(session) is mailbox and mailbox.is_idle:
            del self.sessions[session]
            self._unclaimed -= mailbox.is_unclaimed

    async def wait_for_space(self) -> None:
        """Wait while the queued bytes exceed the limit."""
        while self.waiting > self.max_bytes and not self.ended:
            await self._space.park()

    def end(self) -> None:
        """EOF: queued lines can still be read."""
        self.ended = True
        self.is_open = lambda _: False  # it keeps the client in a reference cycle
        self._space.unpark_all()
        for mailbox in (self.connection, *self.sessions.values()):
            mailbox.wake()

    def count(self, change: int) -> None:
        self.waiting += change
        if change < 0:
            self._space.unpark_all()


def _size(line: bytes) -> int:
    return len(line) + _LINE_OVERHEAD
