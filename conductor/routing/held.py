"""Messages that wait for a component while it is started again: kept in order, then let go."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from conductor.connection.calls import Call
from conductor.session_ids import session_of

if TYPE_CHECKING:
    from conductor.routing.wire import Wire
    from conductor.routing.wire_side import WireSide

__all__ = ["Held", "Holding"]

_HELD_SIZE: Final = 300
"""What keeping a message costs, besides its params."""


class Held(msgspec.Struct, frozen=True, eq=False):
    """A message that waits for its component."""

    side: WireSide
    call: Call | None
    method: str
    params: bytes | None


@attrs.define(eq=False)
class Holding:
    """All that waits for one component."""

    messages: deque[Held] = attrs.field(factory=deque)
    size: int = 0

    def keep(self, held: Held) -> None:
        self.messages.append(held)
        self.size += _HELD_SIZE + (0 if held.params is None else len(held.params))

    def has_prompt(self, session: str) -> bool:
        """Whether a prompt of this session waits."""
        return any(_is_prompt(held, session) for held in self.messages)

    def take_prompts(self, session: str) -> list[Call]:
        """Take out the prompts of this session: they are not sent."""
        taken = [held for held in self.messages if _is_prompt(held, session)]
        self.messages = deque(held for held in self.messages if held not in taken)
        self.size -= sum(_HELD_SIZE + len(held.params or b"") for held in taken)
        return [held.call for held in taken if held.call is not None]

    def release(self) -> None:
        """To the component, in order."""
        for held in self.messages:
            if held.call is None:
                held.side.notify(held.method, held.params)
            else:
                held.side.request(held.call, held.method, held.params)

    def pass_by(self, wire: Wire) -> None:
        """Past the component, which is left out of the chain, in order."""
        assert wire.wrapped is not None
        for held in self.messages:
            beyond = wire.plain.neighbour if held.side.wrapped else wire.wrapped.neighbour
            if held.call is None:
                beyond.notify(held.method, held.params)
            else:
                beyond.request(held.call, held.method, held.params)


def _is_prompt(held: Held, session: str) -> bool:
    return held.method == "session/prompt" and session_of(held.params) == session
