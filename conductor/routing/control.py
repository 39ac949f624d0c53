"""Control messages: those that a component sends to the conductor itself. Pure.

Input: requests and notifications of `CONTROL_METHODS` from the component behind a link. An envelope
(`proxy/successor`) is removed and its message goes to the successor; a `proxy/initialize` from the
parent conductor (this chain is a proxy in another one) tells which dialect the parent speaks; a
cancellation is sent on with the id of the next hop.

Refused with -32600: envelopes and proxy initializations from components that may not send them, and
envelopes inside of envelopes, with which a component could send in the name of another one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from conductor.acp import NOTIFICATIONS, REQUESTS, session_id_of
from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import CANCEL, INVALID_REQUEST, Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import ENVELOPE_METHODS, INIT_METHODS, is_marked, unmarked, unwrap
from conductor.routing.link_port import LinkState

__all__ = [
    "CONTROL_METHODS",
    "control_notification",
    "control_notifications",
    "control_request",
]

CONTROL_METHODS: Final = frozenset({*ENVELOPE_METHODS, *INIT_METHODS, CANCEL, "initialize"})
_NOT_BATCHED: Final = CONTROL_METHODS | REQUESTS


def control_request(
    link: LinkState, call: InFlightRequest, method: str, params: Payload | None
) -> None:
    """Handle a request of `CONTROL_METHODS`. Raises `RequestError` to refuse it."""
    if method in ENVELOPE_METHODS:
        if (port := link.enveloped) is None:
            raise _no_successor(link, method)
        inner = unwrap(params)
        call.method = inner.method
        if inner.method in NOTIFICATIONS:
            control_notification(link, method, params)
            call.source.respond(call, b"{}", None)
            return
        if inner.method in INIT_METHODS:
            if link.initializer is not None:
                link.initializer.on_echoed()
            raise _invalid_request("initialize/proxy requests are only sent by the conductor")
        if inner.method in ENVELOPE_METHODS:
            raise _invalid_request(f"{inner.method} cannot be sent inside of {method}")
        if inner.method == "session/prompt":
            call.session = session_id_of(inner.params)
        inner_params = inner.params
        if inner.method == "initialize" and inner_params is not None:
            inner_params = unmarked(inner_params)
        route = port.received_requests
        route.get(inner.method, route.others)(call, inner.method, inner_params)
    elif method in INIT_METHODS:
        if link.role != "parent":
            if link.initializer is not None:
                link.initializer.on_sent_back(method)
            raise _invalid_request("initialize/proxy requests are only sent by the conductor")
        if link.initialized:
            raise _invalid_request("a connection is initialized only once")
        link.dialect = INIT_METHODS[method]
        call.method = "initialize"
        route = link.plain.received_requests
        route.get("initialize", route.others)(call, "initialize", params)
    elif method == "initialize" and link.initialized:
        raise _invalid_request("a connection is initialized only once")
    elif method == "initialize" and link.role == "parent" and is_marked(params):
        assert params is not None
        link.dialect = "_meta"
        route = link.plain.received_requests
        route.get(method, route.others)(call, method, unmarked(params))
    elif method == "initialize" and link.role == "parent":
        raise _invalid_request("this conductor runs as a proxy: expected `proxy/initialize`")
    elif method == "initialize" and link.initializer is not None:
        link.initializer.on_sent_back(method)
        raise _invalid_request(
            "`initialize` is not for the client: proxies send it in `proxy/successor`"
        )
    else:
        route = link.plain.received_requests
        route.get(method, route.others)(call, method, params)


def control_notifications(link: LinkState, envelopes: NotificationBatch) -> None:
    """Remove the envelopes of several notifications; consecutive ones of one method stay a
    batch."""
    method = envelopes.method
    if method not in ENVELOPE_METHODS or link.enveloped is None:
        for each in envelopes.params:
            link.on_notification(method, each)
        return
    batch: list[Payload] = []
    batch_method = ""
    for envelope in envelopes.params:
        try:
            inner = unwrap(envelope)
        except RequestError:
            inner = None
        if inner is None or inner.params is None or inner.method in _NOT_BATCHED:
            _flush_notifications(link, batch_method, batch)
            batch = []
            link.on_notification(method, envelope)
            continue
        if inner.method != batch_method:
            _flush_notifications(link, batch_method, batch)
            batch, batch_method = [], inner.method
        batch.append(inner.params)
    _flush_notifications(link, batch_method, batch)


def control_notification(link: LinkState, method: str, params: Payload | None) -> None:
    """Handle a notification of `CONTROL_METHODS`. Raises `RequestError` if it is invalid."""
    if method in ENVELOPE_METHODS:
        if (port := link.enveloped) is None:
            raise _no_successor(link, method)
        inner = unwrap(params)
        if inner.method == CANCEL:
            _cancel(link, inner.params)
        elif inner.method in INIT_METHODS or inner.method in ENVELOPE_METHODS:
            raise _invalid_request(f"{inner.method} cannot be sent inside of {method}")
        elif inner.method in REQUESTS:
            raise _invalid_request(f"{inner.method} is a request")
        else:
            route = port.received_notifications
            route.get(inner.method, route.others)(inner.method, inner.params)
    elif method == CANCEL:
        _cancel(link, params)
    elif method in INIT_METHODS:
        raise _invalid_request("an initialization is a request")
    else:
        route = link.plain.received_notifications
        route.get(method, route.others)(method, params)


def _flush_notifications(link: LinkState, method: str, batch: list[Payload]) -> None:
    if batch:
        assert link.enveloped is not None
        route = link.enveloped.received_batches
        route.get(method, route.others)(NotificationBatch(method, batch))


def _no_successor(link: LinkState, method: str) -> RequestError:
    who = "a client" if link.role == "client" else "an agent"
    return _invalid_request(f"{method} is for proxies: {who} has no successor")


def _cancel(link: LinkState, params: Payload | None) -> None:
    """Cancel the request that the params name by its id on this connection.

    The cancellation may come in an envelope or outside of one. `InFlightRequest.cancel` gives it to
    the request's target. An unknown id is not an error: the response may have been sent before
    the cancellation was received.
    """
    if link.connection is None or params is None:
        return
    try:
        id = decode_with_surrogates(params, _decode_cancel).requestId
    except ValueError:
        link.report("notification dropped", f"{CANCEL}: no valid requestId", {"method": CANCEL})
        return
    call = link.connection.received.get(id)
    if call is not None:
        route = link.plain.received_cancels
        route.get(call.method, route.others)(call)


class _Cancel(msgspec.Struct):
    requestId: int | str | None


_decode_cancel: Final = msgspec.json.Decoder(_Cancel).decode


def _invalid_request(problem: str) -> RequestError:
    return RequestError(INVALID_REQUEST, "Invalid request", problem)
