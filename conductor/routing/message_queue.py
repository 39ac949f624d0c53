"""Message queue, counted in bytes. Pure.

Three places hold messages back: the startup gate (before initialization), a link (while its
component restarts) and the detached client (while the client is away). Each of them appends
messages in arrival order and releases them in that order. The queue has no limit of its own: `size`
counts towards back-pressure, so that the source of the messages is not read while too many bytes
wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from conductor.acp import session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.port import Port
from conductor.routing.stage import EVERY, ForwardNotification, ForwardRequest, Stage

__all__ = ["MESSAGE_OVERHEAD", "Hold", "MessageQueue", "QueuedMessage"]

MESSAGE_OVERHEAD: Final = 300
"""Bytes that one queued message costs besides its params."""


class QueuedMessage(msgspec.Struct, frozen=True, eq=False):
    """A request or a notification that waits. Responses are never queued."""

    call: InFlightRequest | None
    """`None` for a notification."""
    method: str
    params: bytes | None
    """Raw JSON of the `params` member, or `None` if absent."""
    port: Port | None = None
    """The port that the message was sent to, where the queue serves more than one."""

    @classmethod
    def copy_of(
        cls,
        call: InFlightRequest | None,
        method: str,
        params: Payload | None,
        port: Port | None = None,
    ) -> QueuedMessage:
        """A message with its own copy of `params`, which may be a view of a read buffer."""
        return cls(call, method, None if params is None else bytes(params), port)

    @property
    def size(self) -> int:
        """Bytes that it costs to keep the message."""
        return MESSAGE_OVERHEAD + (0 if self.params is None else len(self.params))

    def send_to(self, port: Port) -> None:
        """Pass the message on to a port."""
        if self.call is None:
            port.notify(self.method, self.params)
        else:
            port.request(self.call, self.method, self.params)


class MessageQueue:
    """Messages in arrival order, and their total size in bytes."""

    __slots__ = ("_messages", "size")

    def __init__(self) -> None:
        self._messages: deque[QueuedMessage] = deque()
        self.size: int = 0

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: QueuedMessage) -> None:
        self._messages.append(message)
        self.size += message.size

    def prepend(self, messages: Iterable[QueuedMessage]) -> None:
        """Insert messages, in their order, before those that wait."""
        first = list(messages)
        self._messages.extendleft(reversed(first))
        self.size += sum(each.size for each in first)

    def has_prompt(self, session: str) -> bool:
        """Whether a prompt of this session waits."""
        return any(_is_prompt(message, session) for message in self._messages)

    def take_prompts(self, session: str) -> list[InFlightRequest]:
        """Take out the prompts of this session; they are not sent."""
        taken = self.remove(lambda message: _is_prompt(message, session))
        return [message.call for message in taken if message.call is not None]

    def remove(self, matches: Callable[[QueuedMessage], bool]) -> list[QueuedMessage]:
        """Take out the messages for which `matches` is true, and return them in order."""
        removed: list[QueuedMessage] = []
        self.release(lambda each: removed.append(each) if matches(each) else self.append(each))
        return removed

    def release(self, to: Callable[[QueuedMessage], None]) -> None:
        """Empty the queue and call `to` with each message, in order.

        `to` may append to the queue: that message waits for the next release.
        """
        messages, self._messages, self.size = self._messages, deque(), 0
        for message in messages:
            to(message)


class Hold(Stage):
    """Keeps the messages for a component that is not ready, in order, until they are released."""

    __slots__ = ("_queue",)

    name = "hold"
    sent: frozenset[str] = EVERY

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self._queue.append(QueuedMessage.copy_of(call, method, params, self.port))

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._queue.append(QueuedMessage.copy_of(None, method, params, self.port))


def _is_prompt(message: QueuedMessage, session: str) -> bool:
    return message.method == "session/prompt" and session_id_of(message.params) == session
