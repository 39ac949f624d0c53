"""What a client was told and asked that it may not have got, so that it can be told again. Pure.

A client may be cut off and come back (`detached_client`). Kept for that are the requests that it
has not answered, while it is there; and once it is lost, what was written and never read.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from msgspec import UNSET

from conductor.acp import session_id_of
from conductor.jsonrpc.codec import decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import CANCEL, Message, Payload
from conductor.routing.message_queue import QueuedMessage

__all__ = ["UnansweredRequests", "undelivered_messages"]


@attrs.define(eq=False)
class UnansweredRequests:
    """An observer of the client's link: what the client was asked, and which turns it waits for.

    Keeps at most `max_bytes` bytes; what goes beyond cannot be asked again.
    """

    max_bytes: int = 8 * 1024 * 1024
    _requests: dict[InFlightRequest, QueuedMessage | None] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)
    _open_prompts: dict[InFlightRequest, str | None] = attrs.field(factory=dict, init=False)

    def take_all(self) -> list[tuple[InFlightRequest, QueuedMessage | None]]:
        """What is not answered, in order, to be asked of somebody else."""
        message, self._requests, self._size = self._requests, {}, 0
        return list(message.items())

    def has_open_prompt(self, session: str) -> bool:
        """Whether a prompt of this session is not answered yet."""
        return session in self._open_prompts.values()

    def on_request_to(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        message = QueuedMessage.copy_of(call, method, params)
        fits = self._size + message.size <= self.max_bytes
        self._requests[call] = message if fits else None
        self._size += message.size if fits else 0

    def on_response_from(self, call: InFlightRequest) -> None:
        message = self._requests.pop(call, None)
        self._size -= 0 if message is None else message.size

    def on_request_from(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method == "session/prompt":
            self._open_prompts[call] = session_id_of(params)

    def on_response_to(self, call: InFlightRequest) -> None:
        self._open_prompts.pop(call, None)

    def on_notification_from(self, method: str, params: Payload | None) -> None:
        pass


def undelivered_messages(connection: Connection, unread: bytes) -> list[QueuedMessage]:
    """What a client's connection was to write and the client never got; `unread` had been written.

    Of interest are notifications, and requests that are open; answers are for nobody, and
    cancellations are issued anew.
    """
    data = bytearray(unread)

    def take_all(pieces: Sequence[bytes | memoryview]) -> int:
        before = len(data)
        data.extend(b"".join(pieces))
        return len(data) - before

    connection.write_buffer.flush(take_all)
    found = []
    for line in bytes(data).split(b"\n"):
        message = decode(line) if line else None
        if type(message) is not Message or message.method is UNSET or message.method == CANCEL:
            continue
        call = None if message.id is UNSET else connection.sent.get(message.id)
        if message.id is UNSET or call is not None:
            params = None if message.params is UNSET else bytes(message.params)
            found.append(QueuedMessage(call, message.method, params))
    return found
