"""Messages that wait for a component while it is started again: kept in order, then let go."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from conductor.acp import session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest

if TYPE_CHECKING:
    from conductor.routing.link import Link
    from conductor.routing.link_port import LinkPort

__all__ = ["MessageQueue", "QueuedMessage"]

_MESSAGE_OVERHEAD: Final = 300
"""What keeping a message costs, besides its params."""


class QueuedMessage(msgspec.Struct, frozen=True, eq=False):
    """A message that waits for its component."""

    port: LinkPort
    call: InFlightRequest | None
    method: str
    params: bytes | None


@attrs.define(eq=False)
class MessageQueue:
    """All that waits for one component."""

    messages: deque[QueuedMessage] = attrs.field(factory=deque)
    size: int = 0

    def append(self, message: QueuedMessage) -> None:
        self.messages.append(message)
        self.size += _MESSAGE_OVERHEAD + (0 if message.params is None else len(message.params))

    def has_prompt(self, session: str) -> bool:
        """Whether a prompt of this session waits."""
        return any(_is_prompt(message, session) for message in self.messages)

    def take_prompts(self, session: str) -> list[InFlightRequest]:
        """Take out the prompts of this session: they are not sent."""
        taken = [message for message in self.messages if _is_prompt(message, session)]
        self.messages = deque(message for message in self.messages if message not in taken)
        self.size -= sum(_MESSAGE_OVERHEAD + len(message.params or b"") for message in taken)
        return [message.call for message in taken if message.call is not None]

    def release(self) -> None:
        """To the component, in order."""
        for message in self.messages:
            if message.call is None:
                message.port.notify(message.method, message.params)
            else:
                message.port.request(message.call, message.method, message.params)

    def release_past(self, link: Link) -> None:
        """Past the component, which is left out of the chain, in order."""
        assert link.enveloped is not None
        for message in self.messages:
            next_port = link.plain.neighbour if message.port.enveloped else link.enveloped.neighbour
            if message.call is None:
                next_port.notify(message.method, message.params)
            else:
                next_port.request(message.call, message.method, message.params)


def _is_prompt(message: QueuedMessage, session: str) -> bool:
    return message.method == "session/prompt" and session_id_of(message.params) == session
