"""A request on its way, and the batch that it came in. Pure state.

Ids belong to one connection (design §4). An `InFlightRequest` ties the id that a request came with
to the id it was sent on with, over one hop; there is no table beyond the two connections' own.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from conductor.jsonrpc.messages import Id, Payload

__all__ = ["BatchResponse", "InFlightRequest", "RequestOriginator", "RequestTarget"]


class RequestOriginator(Protocol):
    """Who asked: the place where the answer to a call goes."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Take the answer; exactly one of `result` and `error` is given."""


class RequestTarget(Protocol):
    """Who was asked."""

    def cancel(self, call: InFlightRequest) -> None:
        """Tell whoever works on the call that nobody wants it any more. The answer still comes."""


class InFlightRequest(msgspec.Struct, eq=False, weakref=True):
    """One request over one hop. It is answered exactly once (design: invariant 1).

    A `Struct`, because it is made in a third of the time; it is never encoded.
    """

    method: str
    source: RequestOriginator
    source_id: Id = None
    batch: BatchResponse | None = None
    slot: int = 0
    target: RequestTarget | None = None
    target_id: int = 0
    cancelled: bool = False
    answered: bool = False
    session: str | None = None
    """The session of a prompt that a proxy sent on."""

    def cancel(self) -> None:
        """Pass the cancellation on, once; a call without a target is cancelled when it has one."""
        if self.cancelled or self.answered:
            return
        self.cancelled = True
        if self.target is not None:
            self.target.cancel(self)


class BatchResponse(msgspec.Struct, eq=False):
    """The answers to one batch: slots in the order of the batch's members (JSON-RPC 2.0 §6).

    The array is complete when every member has been looked at (`sealed`) and every slot is filled.
    """

    slots: list[bytes | None] = []
    open: int = 0
    sealed: bool = False

    def reserve(self) -> int:
        """A slot for the answer of the next request of the batch."""
        self.slots.append(None)
        self.open += 1
        return len(self.slots) - 1

    def fill(self, slot: int, answer: bytes) -> None:
        self.slots[slot] = answer
        self.open -= 1

    def complete(self) -> bytes | None:
        """The array to send, as one line, once there is one; an empty one is not sent at all."""
        if not self.sealed or self.open or not self.slots:
            return None
        return b"[" + b",".join(answer for answer in self.slots if answer is not None) + b"]\n"
