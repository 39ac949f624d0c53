"""Requests that were answered in the place of a component; its own answers may still come. Pure.

A late answer is dropped, with a log event that names its request. Times are in seconds of the
caller's clock.
"""

from __future__ import annotations

from typing import Final

import attrs

from conductor.bounded_dict import BoundedDict
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Id

__all__ = ["LateAnswers"]

_MAX: Final = 200
"""A component may never answer."""


@attrs.frozen
class _AnsweredInPlace:
    call: InFlightRequest
    time: float
    waited: float | None


@attrs.define(eq=False)
class LateAnswers:
    """Late answers that one connection may still receive."""

    _expected: BoundedDict[Id, _AnsweredInPlace] = attrs.field(
        factory=lambda: BoundedDict(_MAX), init=False
    )

    def expect(self, call: InFlightRequest, now: float, waited: float | None) -> None:
        """A request was answered in the component's place, after so many seconds if known."""
        self._expected[call.target_id] = _AnsweredInPlace(call, now, waited)

    def take(self, id: Id, now: float) -> tuple[str, dict[str, object]] | None:
        """Description of the late answer with this id, and method and session of its request;
        `None` if it answers no request that was answered in place."""
        found = self._expected.pop(id, None)
        if found is None:
            return None
        call, since = found.call, now - found.time
        sent = "" if found.waited is None else f"sent {since + found.waited:.1f} s ago, and "
        detail = f"the request was {sent}answered in its place {since:.1f} s ago"
        session = {} if call.session is None else {"session": call.session}
        return detail, {"method": call.method, **session}
