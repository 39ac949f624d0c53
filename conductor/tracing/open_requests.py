"""Table of the requests in flight on each hop: a response record gets the number, method and
session of its request, and a cancellation has a record for each hop.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import msgspec

from conductor.routing.traced_port import TracedPort
from conductor.tracing.common_members import Common, Hop

__all__ = ["OpenRequest", "OpenRequests"]


class OpenRequest(msgspec.Struct, gc=False):
    """A request without a response. A `Struct`: one is made for each request on each hop."""

    n: int
    time: float
    port: TracedPort
    common: Common
    is_cancelled: bool = False
    """Whether the cancellation has a record."""


@attrs.define(eq=False, repr=False)
class OpenRequests:
    """By the identity of the request, and hop.

    A request that an inserted component passes on as it is passes the hop twice, and its response
    in reverse order.
    """

    _open: dict[tuple[int, Hop], list[OpenRequest]] = attrs.field(factory=dict, init=False)

    def add(self, call: int, hop: Hop, request: OpenRequest) -> None:
        key = call, hop
        if key in self._open:
            self._open[key].append(request)
        else:
            self._open[key] = [request]

    def answered(self, call: int, hop: Hop, method: str) -> OpenRequest | None:
        """The request that is answered on this hop; it is not open any more.

        The startup gate sends an `initialize` of its own, and answers the client's.
        """
        key = call, hop
        found = self._open.get(key)
        if found is not None:
            if len(found) == 1:
                del self._open[key]
            return found.pop()
        if method == "initialize":
            for other, requests in self._open.items():
                if other[1] == hop and requests[0].common.method == method:
                    return self._open.pop(other)[0]
        return None

    def cancelled(self, call: int, hops: Iterable[Hop]) -> list[OpenRequest]:
        """The requests on these hops, in order, that were not cancelled before."""
        found = [each for hop in hops for each in self._open.get((call, hop), ())]
        new = [each for each in found if not each.is_cancelled]
        for each in new:
            each.is_cancelled = True
        return sorted(new, key=lambda request: request.n)
