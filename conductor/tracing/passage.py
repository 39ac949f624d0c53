"""A recorded message. Recorders keep tuples of its members; their readers make it of these."""

from __future__ import annotations

from typing import NamedTuple

from conductor.jsonrpc.messages import Id
from conductor.routing.trace import KeptPayload, Mark, MessageKind, TraceStage

__all__ = ["Passage"]


class Passage(NamedTuple):
    """A message that passed a hop."""

    time: float
    """In seconds of the monotonic clock."""
    port: TraceStage
    kind: MessageKind
    method: str
    """For a response, the method of the request."""
    payload: KeptPayload
    call: int = 0
    """Identifies a request, its response and its cancellation (a notification that stands for the
    one on each hop that the request has passed); hops may have the same."""
    detail: Id | bool = None
    """For a request, the sender's id; for a response, whether the request was cancelled; for a
    cancellation, whether the sender of the request cancelled it, and not the conductor."""
    mark: Mark | None = None
    cause: Mark | None = None
