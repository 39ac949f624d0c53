"""Undelivered messages of a client, for redelivery after a reconnect. Pure.

A client may be disconnected and return (`detached_client`). For that, `UnansweredRequests` keeps
the requests that the client has not answered, and `undelivered_messages` finds, after the
disconnect, the messages that were written but not read.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from msgspec import UNSET

from conductor.acp.turns import Turns
from conductor.jsonrpc.codec import decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import CANCEL, Message, Payload
from conductor.routing.message_queue import QueuedMessage
from conductor.routing.observers import LinkObserver

__all__ = ["UnansweredRequests", "undelivered_messages"]


@attrs.define(eq=False)
class UnansweredRequests(LinkObserver):
    """Open requests to the client; an observer of those sent to it.

    Keeps requests of at most `max_bytes` bytes in total; others cannot be sent again.
    """

    turns: Turns[InFlightRequest]
    """The turns of the client."""
    max_bytes: int = 8 * 1024 * 1024
    _requests: dict[InFlightRequest, QueuedMessage | None] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)

    def take_all(self) -> list[tuple[InFlightRequest, QueuedMessage | None]]:
        """Remove and return the unanswered requests in order; `None` for one that was not kept."""
        requests, self._requests, self._size = self._requests, {}, 0
        return list(requests.items())

    def has_open_prompt(self, session: str) -> bool:
        """Whether a prompt of this session is unanswered."""
        turns = self.turns.sessions.get(session)
        return turns is not None and any(turns.unanswered())

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        message = QueuedMessage.copy_of(call, method, params)
        fits = self._size + message.size <= self.max_bytes
        self._requests[call] = message if fits else None
        self._size += message.size if fits else 0

    def on_response(self, call: InFlightRequest) -> None:
        message = self._requests.pop(call, None)
        self._size -= 0 if message is None else message.size


def undelivered_messages(connection: Connection, unread: bytes) -> list[QueuedMessage]:
    """The notifications and open requests that a disconnected client has not received, in order.

    `unread` is the end of what was written to its transport; the write buffer of `connection` is
    emptied. Responses and cancellations are left out: they belong to the lost connection.
    """
    data = bytearray(unread)

    def collect(pieces: Sequence[bytes | memoryview]) -> int:
        before = len(data)
        data.extend(b"".join(pieces))
        return len(data) - before

    connection.write_buffer.flush(collect)
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
