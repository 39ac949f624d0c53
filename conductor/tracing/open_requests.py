"""Table of the requests in flight on each hop: a response record gets the number, method and
session of its request, and a cancellation has a record for each hop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from conductor.routing.trace import TraceStage

__all__ = ["OpenRequest", "OpenRequests"]

Hop: TypeAlias = tuple[str, int]
"""Name of the chain, and number of the hop in it."""


class OpenRequest(msgspec.Struct, gc=False):
    """A request without a response."""

    n: int
    time: float
    port: TraceStage
    method: str
    protocol: Literal["acp", "mcp"]
    session: str | None
    before: OpenRequest | None = None
    """The same request, when it passed this hop before."""
    is_cancelled: bool = False
    """Whether the cancellation has a record."""


class OpenRequests(dict[tuple[int, Hop], OpenRequest]):
    """By the identity of the request, and hop.

    A request that an inserted component passes on as it is passes the hop twice, and its response
    in reverse order.
    """

    def add(self, call: int, hop: Hop, request: OpenRequest) -> None:
        """A request passes a hop."""
        request.before = self.get((call, hop))
        self[call, hop] = request

    def answered(self, call: int, hop: Hop, method: str) -> OpenRequest | None:
        """The request that is answered on this hop; it is not open any more.

        The startup gate sends an `initialize` of its own, and answers the client's.
        """
        key = call, hop
        found = self.pop(key, None)
        if found is None and method == "initialize":
            for key, request in self.items():
                if key[1] == hop and request.method == method:
                    return self.pop(key)
        if found is not None and found.before is not None:
            self[key] = found.before
        return found

    def cancelled(self, call: int, hops: Iterable[Hop]) -> list[OpenRequest]:
        """The requests on these hops, in order, that were not cancelled before."""
        new: list[OpenRequest] = []
        for hop in hops:
            request = self.get((call, hop))
            while request is not None:
                if not request.is_cancelled:
                    request.is_cancelled = True
                    new.append(request)
                request = request.before
        return sorted(new, key=lambda request: request.n)
