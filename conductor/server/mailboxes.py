"""What waits for the streams of a Streamable HTTP client, within bounds.

A stream may open long after there is something to tell on it, or never; what waits for all streams
of a client is counted together, and whoever feeds them waits when it is too much. So a client that
does not read slows its own chain down, and loses nothing.

For a client of ours what was sent waits, too, until the client says that it has it: its numbers are
the ids of the events, and a stream that is opened again goes on behind the last one.
"""

from __future__ import annotations

from collections import deque

import attrs
import trio

from conductor.remote.numbering import Numbered, Outgoing

__all__ = ["Mailbox", "Mailboxes"]

_PER_LINE = 100
"""What a line takes beside its bytes."""


@attrs.define(eq=False)
class Mailbox:
    """The lines for one stream; one reader at a time."""

    of: Mailboxes
    taken: bool = False
    """Somebody reads it."""
    sent: Outgoing = attrs.field(factory=Outgoing, init=False)
    """Of a client of ours: what it was sent and has not acknowledged."""
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Ends whoever reads it."""
    left: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when whoever read it does so no more."""
    _acknowledged: trio.lowlevel.ParkingLot = attrs.field(
        factory=trio.lowlevel.ParkingLot, init=False
    )
    _lines: deque[bytes] = attrs.field(factory=deque, init=False)
    _more: trio.Event = attrs.field(factory=trio.Event, init=False)

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

    async def take_numbered(self) -> list[Numbered]:
        """Like `take`, but what is taken is kept until it is acknowledged."""
        lines = await self.take()
        self.of.count(sum(map(_size, lines)))
        return [self.sent.get(self.sent.put(line)) for line in lines]

    def acknowledge(self, number: int) -> None:
        """The client has everything up to this number. Raises `OutOfStep`."""
        before = self.sent.acknowledged, self.sent.size
        if number > before[0]:
            self.sent.acknowledge(number)
            lines = self.sent.acknowledged - before[0]
            self.of.count(self.sent.size - before[1] - lines * _PER_LINE)
            self._acknowledged.unpark_all()

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
    """Of one client: the connection's, and one for each session that was spoken of."""

    bound: int
    most: int
    """How many sessions may be spoken of."""
    ended: bool = attrs.field(default=False, init=False)
    connection: Mailbox = attrs.field(init=False)
    sessions: dict[str, Mailbox] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self.connection = Mailbox(self)

    def of(self, session: str | None) -> Mailbox:
        """The mailbox of a session; beyond the bound on them it is the connection's."""
        if session is None:
            return self.connection
        mailbox = self.sessions.get(session)
        if mailbox is None:
            if len(self.sessions) >= self.most:
                return self.connection
            mailbox = self.sessions[session] = Mailbox(self)
        return mailbox

    def known(self, session: str | None) -> Mailbox | None:
        """The same, but none is made."""
        return self.connection if session is None else self.sessions.get(session)

    def streaming(self, session: str) -> bool:
        """Whether somebody reads the session's stream."""
        return session in self.sessions and self.sessions[session].taken

    async def room(self) -> None:
        """Wait while more waits than may."""
        while self._size > self.bound and not self.ended:
            await self._room.park()

    def end(self) -> None:
        """No more will come; what waits may be read."""
        self.ended = True
        self._room.unpark_all()
        for mailbox in (self.connection, *self.sessions.values()):
            mailbox.wake()

    def count(self, change: int) -> None:
        self._size += change
        if change < 0:
            self._room.unpark_all()


def _size(line: bytes) -> int:
    return len(line) + _PER_LINE
