"""Functions that get the response to a request."""

from __future__ import annotations

from conductor.chain.response_watch import OwnRequest, ResponseWatch
from conductor.jsonrpc.in_flight import InFlightRequest


def test_a_watch_sees_the_response_before_and_after_the_originator():
    seen = []
    originator = OwnRequest(lambda result, error: seen.append(("answered", result, error)))
    call = InFlightRequest("session/new", originator)
    ResponseWatch(
        call,
        lambda result, error: seen.append(("before", result, error)),
        lambda result, error: seen.append(("after", result, error)),
    )
    call.source.respond(call, b"{}", None)

    assert seen == [("before", b"{}", None), ("answered", b"{}", None), ("after", b"{}", None)]
    assert call.source is originator
