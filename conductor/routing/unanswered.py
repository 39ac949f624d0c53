"""What a client was told and asked that it may not have got, so that it can be told again. Pure.

A client may be cut off and come back (`parking`). Kept for that are the requests that it has not
answered, while it is there; and once it is lost, what was written and never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from msgspec import UNSET

from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.frames import decode
from conductor.messages import CANCEL, Message, Payload
from conductor.session_ids import session_of

__all__ = ["Asked", "Unanswered", "undelivered"]

_MESSAGE_SIZE: Final = 300
"""What keeping a message costs, besides its params."""


@attrs.frozen(eq=False)
class Asked:
    """A message toward the client, kept; with a call it is a request."""

    call: Call | None
    method: str
    params: bytes | None

    @property
    def size(self) -> int:
        return _MESSAGE_SIZE + (0 if self.params is None else len(self.params))


@attrs.define(eq=False)
class Unanswered:
    """An observer of the client's wire: what the client was asked, and which turns it waits for.

    Keeps at most `bound` bytes; what goes beyond cannot be asked again.
    """

    bound: int = 8 * 1024 * 1024
    _asked: dict[Call, Asked | None] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)
    _turns: dict[Call, str | None] = attrs.field(factory=dict, init=False)

    def take(self) -> list[tuple[Call, Asked | None]]:
        """What is not answered, in order, to be asked of somebody else."""
        asked, self._asked, self._size = self._asked, {}, 0
        return list(asked.items())

    def has_turn(self, session: str) -> bool:
        """Whether a prompt of this session is not answered yet."""
        return session in self._turns.values()

    def on_asked(self, call: Call, method: str, params: Payload | None) -> None:
        asked = Asked(call, method, None if params is None else bytes(params))
        fits = self._size + asked.size <= self.bound
        self._asked[call] = asked if fits else None
        self._size += asked.size if fits else 0

    def on_answered(self, call: Call) -> None:
        asked = self._asked.pop(call, None)
        self._size -= 0 if asked is None else asked.size

    def on_asks(self, call: Call, method: str, params: Payload | None) -> None:
        if method == "session/prompt":
            self._turns[call] = session_of(params)

    def on_told(self, call: Call) -> None:
        self._turns.pop(call, None)

    def on_heard(self, method: str, params: Payload | None) -> None:
        pass


def undelivered(connection: Connection, unread: bytes) -> list[Asked]:
    """What a client's connection was to write and the client never got; `unread` had been written.

    Of interest are notifications, and requests that are open; answers are for nobody, and
    cancellations are issued anew.
    """
    data = bytearray(unread)

    def take(pieces: Sequence[bytes | memoryview]) -> int:
        before = len(data)
        data.extend(b"".join(pieces))
        return len(data) - before

    connection.outbox.flush(take)
    found = []
    for line in bytes(data).split(b"\n"):
        message = decode(line) if line else None
        if type(message) is not Message or message.method is UNSET or message.method == CANCEL:
            continue
        call = None if message.id is UNSET else connection.sent.get(message.id)
        if message.id is UNSET or call is not None:
            params = None if message.params is UNSET else bytes(message.params)
            found.append(Asked(call, message.method, params))
    return found
