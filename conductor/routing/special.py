"""The messages that are the conductor's own business: envelopes, inits, cancellations.

They come from the component behind a wire. An envelope is taken off, and what was in it goes to the
successor; an init sets the dialect of the conductor above us; a cancellation is re-issued.

Refused here, with -32600: envelopes and proxy inits from whoever may not send them, and envelopes
inside envelopes, which would let a component speak in another's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from conductor.connection.calls import Call
from conductor.connection.runs import Run
from conductor.errors import RequestError
from conductor.frames import UNUSUAL
from conductor.messages import CANCEL, INVALID_REQUEST, Payload
from conductor.routing.envelope import ENVELOPES, INITS, unwrap
from conductor.session_ids import session_of

if TYPE_CHECKING:
    from conductor.routing.wire import Wire
    from conductor.routing.wire_side import WireSide

__all__ = ["ABOUT_PLUGIN", "SPECIAL", "special_notification", "special_request", "special_run"]

ABOUT_PLUGIN: Final = "_acp-conductor/plugin"
"""By this notification an isolated plugin tells the conductor about its class."""
SPECIAL: Final = frozenset({*ENVELOPES, *INITS, CANCEL, "initialize", ABOUT_PLUGIN})


def special_request(wire: Wire, call: Call, method: str, params: Payload | None) -> None:
    if method in ENVELOPES:
        side = _successor_side(wire, method)
        inner = unwrap(params)
        call.method = inner.method
        if inner.method in INITS:
            if wire.init is not None:
                wire.init.echoed(inner.method)
            raise _misuse("initialize/proxy requests are only sent by the conductor")
        if inner.method in ENVELOPES or inner.method == CANCEL:
            raise _misuse(f"{inner.method} cannot be sent inside of {method}")
        if inner.method == "initialize" and wire.init is not None:
            wire.init.forwarded(call)
        if inner.method == "session/prompt":
            call.session = session_of(inner.params)
        if inner.method in wire.answers:
            side.respond(call, wire.answers[inner.method], None)
            return
        if wire.observer is not None:
            wire.observer.on_asks(call, inner.method, inner.params)
        side.neighbour.request(call, inner.method, inner.params)
    elif method in INITS:
        if wire.role != "parent":
            if wire.init is not None:
                wire.init.sent_back(method)
            raise _misuse("initialize/proxy requests are only sent by the conductor")
        if wire.initialized:
            raise _misuse("a connection is initialized only once")
        wire.dialect = INITS[method]
        wire.plain.neighbour.request(call, "initialize", params)
    elif method == "initialize" and wire.initialized:
        raise _misuse("a connection is initialized only once")
    elif method == "initialize" and wire.role == "parent":
        raise _misuse("this conductor runs as a proxy: expected `proxy/initialize`")
    elif method == "initialize" and wire.init is not None:
        wire.init.sent_back(method)
        raise _misuse("`initialize` is not for the client: proxies send it in `proxy/successor`")
    else:
        wire.plain.neighbour.request(call, method, params)


def special_run(wire: Wire, envelopes: Run) -> None:
    """Take the envelopes off a run of notifications for the successor."""
    method = envelopes.method
    if method not in ENVELOPES or wire.wrapped is None:
        for each in envelopes.params:
            wire.on_notification(method, each)
        return
    run: list[Payload] = []
    run_method = ""
    for envelope in envelopes.params:
        try:
            inner = unwrap(envelope)
        except RequestError:
            inner = None
        if inner is None or inner.params is None or inner.method in SPECIAL:
            _end_run(wire, run_method, run)
            run = []
            wire.on_notification(method, envelope)
            continue
        if inner.method != run_method:
            _end_run(wire, run_method, run)
            run, run_method = [], inner.method
        run.append(inner.params)
    _end_run(wire, run_method, run)


def special_notification(wire: Wire, method: str, params: Payload | None) -> None:
    if method in ENVELOPES:
        side = _successor_side(wire, method)
        inner = unwrap(params)
        if inner.method == CANCEL:
            _cancel(wire, inner.params)
        elif inner.method in INITS or inner.method in ENVELOPES:
            raise _misuse(f"{inner.method} cannot be sent inside of {method}")
        else:
            side.neighbour.notify(inner.method, inner.params)
    elif method == CANCEL:
        _cancel(wire, params)
    elif method == ABOUT_PLUGIN and wire.about_plugin is not None:
        wire.about_plugin(params)
    elif method in INITS:
        raise _misuse("an initialization is a request")
    else:
        wire.plain.neighbour.notify(method, params)


def _end_run(wire: Wire, method: str, run: list[Payload]) -> None:
    if run:
        assert wire.wrapped is not None
        wire.wrapped.neighbour.notify_run(Run(method, run))


def _successor_side(wire: Wire, method: str) -> WireSide:
    if wire.wrapped is None:
        who = "a client" if wire.role == "client" else "an agent"
        raise _misuse(f"{method} is for proxies: {who} has no successor")
    return wire.wrapped


def _cancel(wire: Wire, params: Payload | None) -> None:
    """A cancellation names an id of this connection; it is re-issued on the next hop, never
    tunnelled. Ids that are unknown or done are no mistake: answers and cancellations cross."""
    if wire.connection is None or params is None:
        return
    try:
        id = _decode_cancel(params).requestId
    except UNUSUAL:
        wire.report("dropped a notification", f"{CANCEL}: it names no request id")
        return
    call = wire.connection.received.get(id)
    if call is not None:
        if wire.client_turns is not None:
            wire.client_turns.on_withdrawn(call)
        call.cancel()


class _Cancel(msgspec.Struct):
    requestId: int | str | None


_decode_cancel: Final = msgspec.json.Decoder(_Cancel).decode


def _misuse(problem: str) -> RequestError:
    return RequestError(INVALID_REQUEST, "Invalid request", problem)
