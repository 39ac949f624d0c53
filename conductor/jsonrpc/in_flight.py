"""In-flight requests, and the collected responses to a batch. Pure state.

Ids belong to one connection. An `InFlightRequest` maps the id of a received request to the id with
which it was forwarded, over one hop. There is no global table: each `Connection` has its requests
by id (`sent`, `received`), and finds the request of a response there.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from conductor.jsonrpc.messages import Id, Payload

__all__ = ["BatchResponse", "InFlightRequest", "RequestOriginator", "RequestTarget"]


class RequestOriginator(Protocol):
    """Originator of a request; receives its response."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Take the response, raw JSON; exactly one of `result` and `error` is not `None`."""


class RequestTarget(Protocol):
    """Receiver of a request."""

    def cancel(self, call: InFlightRequest) -> None:
        """Send a cancellation for the request. The response still comes."""


class InFlightRequest(msgspec.Struct, eq=False, weakref=True):
    """One request over one hop. It is answered exactly once.

    A `Struct` because creating one takes a third of the time; it is never encoded.
    """

    method: str
    source: RequestOriginator
    """Gets the response: the connection that the request was read from, or the port of the plugin
    that has made it."""
    source_id: Id = None
    """The id that the originator has given it."""
    batch: BatchResponse | None = None
    slot: int = 0
    target: RequestTarget | None = None
    """Has it now, and gets its cancellation: a queue, a plugin's port, or the port of a link that
    has sent it. `None`: on its way."""
    target_id: int = 0
    """The id with which it was sent on the target's connection."""
    cancelled: bool = False
    answered: bool = False
    refused: bool = False
    """Whether its answer is an error; set before the stages see the answer."""
    session: str | None = None
    """The session id of a prompt, read once: 0.2 ms for a prompt of 1 MiB."""
    forwarded_as: tuple[InFlightRequest, bytes] | None = None
    """The request that a plugin has forwarded for this one, and its raw result. If the answer to
    this one equals it, a component behind the plugin has made it."""

    def cancel(self) -> None:
        """Cancel the request at its target, once. Without a target yet, only note it: the port that
        sends the request later then sends the cancellation after it."""
        if self.cancelled or self.answered:
            return
        self.cancelled = True
        if self.target is not None:
            self.target.cancel(self)


class BatchResponse(msgspec.Struct, eq=False):
    """The responses to one batch: slots in the order of its members (JSON-RPC 2.0 §6).

    The array is complete when every member is routed (`sealed`) and every slot is filled.
    """

    slots: list[bytes | None] = []
    open: int = 0
    sealed: bool = False

    def reserve(self) -> int:
        """Reserve a slot for the response to the next request; return its index."""
        self.slots.append(None)
        self.open += 1
        return len(self.slots) - 1

    def fill(self, slot: int, answer: bytes) -> None:
        self.slots[slot] = answer
        self.open -= 1

    def complete(self) -> bytes | None:
        """The complete array as one line, else `None`; an empty array is never sent."""
        if not self.sealed or self.open or not self.slots:
            return None
        return b"[" + b",".join(answer for answer in self.slots if answer is not None) + b"]\n"
