"""A connection as a component of the chain: its one or two sides, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers (design §4): plain messages are
traffic with its predecessor, `proxy/successor` is traffic with its successor. A client or an agent
has only the plain side; a conductor above us (proxy mode) has both, being our client and, in the
envelope, our successor. The wire stays in its place when the process behind it is replaced.

Refused here, with -32600: envelopes and proxy inits from whoever may not send them, and envelopes
inside envelopes, which would let a component speak in another's name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal, Protocol

import attrs
import msgspec

from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.connection.runs import Run
from conductor.errors import RequestError
from conductor.frames import Malformed
from conductor.messages import (
    CANCEL,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    encode_id,
    error_of,
    notification_pieces,
    request_pieces,
)
from conductor.routing.envelope import (
    DIALECTS,
    ENVELOPES,
    INITS,
    Dialect,
    notification_frame,
    unwrap,
    wrap_notification,
    wrap_request,
)
from conductor.routing.recollection import REMEMBERED, SET_UPS, Recollection, session_of
from conductor.routing.sides import Side

__all__ = ["Held", "Init", "Observer", "Wire", "WireSide"]

Report = Callable[[str, str], None]
"""Called with an event and its details when a peer did something odd."""


class Init(Protocol):
    """Whoever initialises the component behind a wire."""

    def begin(self, call: Call, params: Payload | None) -> None:
        """The predecessor asks for the component's initialization."""

    def forwarded(self, call: Call) -> None:
        """The component asks for its successor's initialization."""

    def echoed(self, method: str) -> None:
        """The component sent a proxy init to its successor."""

    def successor_answered(self, call: Call) -> None:
        """The component gets the answer to a call that it forwarded to its successor."""


class Observer(Protocol):
    """Wants to see what passes a component's plain side; costs nothing where there is none."""

    def on_asked(self, call: Call, method: str, params: Payload | None) -> None:
        """The component gets a request."""

    def on_answered(self, call: Call) -> None:
        """The component answered."""

    def on_asks(self, call: Call, method: str, params: Payload | None) -> None:
        """The component asks."""

    def on_told(self, call: Call) -> None:
        """The component gets an answer."""

    def on_heard(self, method: str, params: Payload | None) -> None:
        """The component notifies."""


class WireSide(Side):
    """One of the peers that a wire carries."""

    __slots__ = ("wire", "wrapped")

    def __init__(self, wire: Wire, *, wrapped: bool) -> None:
        super().__init__()
        self.wire = wire
        self.wrapped = wrapped

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        wire = self.wire
        connection = wire.connection
        if wire.held is not None:
            wire.hold(Held(self, call, method, None if params is None else bytes(params)))
            return
        if connection is None or wire.silent is not None:
            self.neighbour.respond(call, None, wire.silent or wire.why_gone)
            return
        if wire.lost and self._is_lost(call, method, params):
            return
        if method in REMEMBERED and not self.wrapped:
            if wire.interceptor is not None and wire.interceptor(call, method, params):
                return
            wire.recollection.asked(call, method, params)
            if method == "initialize" and wire.init is not None:
                wire.init.begin(call, params)
                return
        if method in _FOR_SERVERS and wire.role == "client" and not wire.recollection.has_servers:
            error = encode_error(METHOD_NOT_FOUND, "Nobody offers this MCP server", method)
            self.neighbour.respond(call, None, error)
            return
        call.target = self
        if wire.observer is not None and not self.wrapped:
            wire.observer.on_asked(call, method, params)
        id = connection.open(call)
        if self.wrapped:
            connection.write(wrap_request(wire.dialect, id, method, params))
        else:
            connection.write(request_pieces(id, method, params))
        if call.cancelled:
            self.cancel(call)

    def backlog(self) -> int:
        return self.wire.backlog()

    def _is_lost(self, call: Call, method: str, params: Payload | None) -> bool:
        """Answer, once, a request about a session that the component lost when it was restarted."""
        session = session_of(params)
        if session not in self.wire.lost:
            return False
        self.wire.lost.discard(session)
        if method in SET_UPS:
            return False
        name = self.wire.name
        message = f"{name} was restarted and has lost this session; start a new one, or load it"
        data = {"component": name, "sessionId": session}
        self.neighbour.respond(call, None, encode_error(INTERNAL_ERROR, message, data))
        return True

    def notify(self, method: str, params: Payload | None) -> None:
        connection = self.wire.connection
        if self.wire.held is not None:
            self.wire.hold(Held(self, None, method, None if params is None else bytes(params)))
            return
        if connection is None:
            return
        if self.wrapped:
            connection.write(wrap_notification(self.wire.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def notify_run(self, run: Run) -> None:
        connection = self.wire.connection
        if connection is None or self.wire.held is not None:
            super().notify_run(run)
            return
        head, tail = notification_frame(self.wire.dialect if self.wrapped else None, run.method)
        connection.write((run.framed(head, tail),))

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call.method in REMEMBERED:
            if self.wire.role in _CLIENTS:
                self.wire.recollection.answered(call, result)
            else:
                self.wire.recollection.inner_answered(call, result)
            if call.method == "initialize" and self.wire.init is not None:
                self.wire.init.successor_answered(call)
        if self.wire.observer is not None:
            self.wire.observer.on_told(call)
        call.source.respond(call, result, error)

    def cancel(self, call: Call) -> None:
        """Re-issue the cancellation with this hop's id (interop §1.5: plain, but to a parent)."""
        connection = self.wire.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.wrapped and self.wire.role == "parent":
            connection.write(wrap_notification(self.wire.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))


class Held(msgspec.Struct, frozen=True, eq=False):
    """A message that waits for its component."""

    side: WireSide
    call: Call | None
    method: str
    params: bytes | None


@attrs.define(eq=False, repr=False)
class Wire:
    """The connection of one component, client or parent conductor.

    `role` decides what it may say: a "client" and an "agent" have no successor; a "proxy" and a
    "parent" (the conductor above us, in proxy mode) have.
    """

    name: str
    role: Literal["client", "proxy", "agent", "parent"]
    report: Report
    dialect: Dialect = DIALECTS[0]
    init: Init | None = None
    connection: Connection | None = None
    why_gone: bytes = encode_error(INTERNAL_ERROR, "The component is not running")
    silent: bytes | None = None
    """The error for requests to a peer that has ended its stream."""
    initialized: bool = False
    """Whether a client, or a parent, has its answer to `initialize`."""
    recollection: Recollection = attrs.field(factory=Recollection)
    held: deque[Held] | None = None
    """What waits while the component is started again; `None` while it runs."""
    held_size: int = 0
    answers: dict[str, bytes] = attrs.field(factory=dict)
    """Results for requests to the successor that are answered from the record (`restoring`)."""
    observer: Observer | None = None
    interceptor: Callable[[Call, str, Payload | None], bool] | None = None
    """Asked first about a request of `REMEMBERED`; true if it has taken care of it."""
    lost: set[str] = attrs.field(factory=set)
    """Sessions that a restarted agent does not know any more, until somebody has been told so."""
    swallowed: str | None = None
    """A session whose updates are dropped: the client has seen them before."""
    plain: WireSide = attrs.field(init=False)
    wrapped: WireSide | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plain = WireSide(self, wrapped=False)
        has_successor = self.role in ("proxy", "parent")
        self.wrapped = WireSide(self, wrapped=True) if has_successor else None

    def backlog(self) -> int:
        """Bytes that wait for the component."""
        return self.held_size + (0 if self.connection is None else self.connection.outbox.size)

    def start_holding(self) -> None:
        """From now on, keep what is sent to the component until `release`."""
        self.held = deque()

    def hold(self, held: Held) -> None:
        """Keep a message until the component runs again."""
        assert self.held is not None
        self.held.append(held)
        self.held_size += _HELD_SIZE + (0 if held.params is None else len(held.params))

    def release(self) -> None:
        """The component runs again, or never will: what waited goes to it, in order."""
        for held in self._take_held():
            if held.call is None:
                held.side.notify(held.method, held.params)
            else:
                held.side.request(held.call, held.method, held.params)

    def pass_by(self) -> None:
        """The component is left out of the chain: what waited for it goes past it, in order."""
        assert self.wrapped is not None
        for held in self._take_held():
            beyond = self.plain.neighbour if held.side.wrapped else self.wrapped.neighbour
            if held.call is None:
                beyond.notify(held.method, held.params)
            else:
                beyond.request(held.call, held.method, held.params)

    def _take_held(self) -> Iterable[Held]:
        waiting, self.held, self.held_size = self.held or (), None, 0
        return waiting

    def give_up(self, call: Call, reason: str) -> None:
        """Answer a call in the component's place, and let the component know; a late answer of its
        own is dropped."""
        connection = self.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        self.plain.cancel(call)
        del connection.sent[call.target_id]
        error = encode_error(INTERNAL_ERROR, reason, {"component": self.name})
        self.on_answer(call, None, error)

    def end_input(self, why: bytes) -> None:
        """The peer says nothing more, but may read: whoever asked it, or asks it now, gets the
        error `why`."""
        self.silent = why
        if self.connection is None:
            return
        owed = list(self.connection.sent.values())
        self.connection.sent.clear()
        for call in owed:
            self.on_answer(call, None, why)

    def disconnect(self, why: bytes) -> None:
        """The peer is gone: answer what it owed with the error `why`, withdraw what it asked."""
        connection, self.connection = self.connection, None
        self.why_gone = why
        if connection is None:
            return
        connection.lose_writing()
        self.recollection.forget_open()
        owed = list(connection.sent.values())
        connection.sent.clear()
        for call in owed:
            self.on_answer(call, None, why)
        asked = connection.unanswered()
        connection.received.clear()
        connection.shadowed.clear()
        for call in asked:
            call.cancel()
            if call.session is not None and self.wrapped is not None:
                # Most agents know no other way to end a turn whose prompt nobody waits for.
                params = msgspec.json.encode({"sessionId": call.session})
                self.wrapped.neighbour.notify("session/cancel", params)

    # -- Receiver: what the peer sent ----------------------------------------------------------

    def on_request(self, call: Call, method: str, params: Payload | None) -> None:
        if method in _SPECIAL:
            try:
                self._special_request(call, method, params)
            except RequestError as exc:
                self.report("refused a request", f"{method}: {exc.data or exc.message}")
                call.source.respond(call, None, error_of(exc))
        else:
            if self.role in _CLIENTS and method in REMEMBERED:
                self.recollection.asked(call, method, params)
            if self.observer is not None:
                self.observer.on_asks(call, method, params)
            self.plain.neighbour.request(call, method, params)

    def on_run(self, run: Run) -> None:
        if self.swallowed is not None or self.observer is not None:
            for each in run.params:
                self.on_notification(run.method, each)
        elif run.method in _SPECIAL:
            self._special_run(run)
        else:
            self.plain.neighbour.notify_run(run)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if self.observer is not None:
            self.observer.on_heard(method, params)
        if method in _SPECIAL:
            try:
                self._special_notification(method, params)
            except RequestError as exc:
                self.report("dropped a notification", f"{method}: {exc.data or exc.message}")
        elif self.swallowed is None or self.swallowed != session_of(params):
            self.plain.neighbour.notify(method, params)

    def on_answer(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call.method in REMEMBERED:
            self.recollection.answered(call, result)
        if self.observer is not None:
            self.observer.on_answered(call)
        side = call.target
        assert isinstance(side, Side)
        side.neighbour.respond(call, result, error)

    def on_malformed(self, frame: Malformed, call: Call | None) -> None:
        if call is not None:
            message = f"{self.name} sent a malformed answer to this request"
            data = {"component": self.name, "reason": frame.reason}
            self.on_answer(call, None, encode_error(INTERNAL_ERROR, message, data))
        self.report(
            "not a message", f"{frame.reason}: {frame.excerpt}" if frame.excerpt else frame.reason
        )

    # -- the messages that are the conductor's own business ------------------------------------

    def _special_request(self, call: Call, method: str, params: Payload | None) -> None:
        if method in ENVELOPES:
            side = self._successor_side(method)
            inner = unwrap(params)
            call.method = inner.method
            if inner.method in INITS:
                if self.init is not None:
                    self.init.echoed(inner.method)
                raise _misuse("initialize/proxy requests are only sent by the conductor")
            if inner.method in ENVELOPES or inner.method == CANCEL:
                raise _misuse(f"{inner.method} cannot be sent inside of {method}")
            if inner.method == "initialize" and self.init is not None:
                self.init.forwarded(call)
            if inner.method == "session/prompt":
                call.session = session_of(inner.params)
            if inner.method in self.answers:
                side.respond(call, self.answers[inner.method], None)
                return
            if self.observer is not None:
                self.observer.on_asks(call, inner.method, inner.params)
            side.neighbour.request(call, inner.method, inner.params)
        elif method in INITS:
            if self.role != "parent":
                raise _misuse("initialize/proxy requests are only sent by the conductor")
            if self.initialized:
                raise _misuse("a connection is initialized only once")
            self.dialect = INITS[method]
            self.plain.neighbour.request(call, "initialize", params)
        elif method == "initialize" and self.initialized:
            raise _misuse("a connection is initialized only once")
        elif method == "initialize" and self.role == "parent":
            raise _misuse("this conductor runs as a proxy: expected `proxy/initialize`")
        else:
            self.plain.neighbour.request(call, method, params)

    def _special_run(self, envelopes: Run) -> None:
        """Take the envelopes off a run of notifications for the successor."""
        method = envelopes.method
        if method not in ENVELOPES or self.wrapped is None:
            for each in envelopes.params:
                self.on_notification(method, each)
            return
        run: list[Payload] = []
        run_method = ""
        for envelope in envelopes.params:
            try:
                inner = unwrap(envelope)
            except RequestError:
                inner = None
            if inner is None or inner.params is None or inner.method in _SPECIAL:
                self._end_run(run_method, run)
                run = []
                self.on_notification(method, envelope)
                continue
            if inner.method != run_method:
                self._end_run(run_method, run)
                run, run_method = [], inner.method
            run.append(inner.params)
        self._end_run(run_method, run)

    def _end_run(self, method: str, run: list[Payload]) -> None:
        if run:
            assert self.wrapped is not None
            self.wrapped.neighbour.notify_run(Run(method, run))

    def _special_notification(self, method: str, params: Payload | None) -> None:
        if method in ENVELOPES:
            side = self._successor_side(method)
            inner = unwrap(params)
            if inner.method == CANCEL:
                self._cancel(inner.params)
            elif inner.method in INITS or inner.method in ENVELOPES:
                raise _misuse(f"{inner.method} cannot be sent inside of {method}")
            else:
                side.neighbour.notify(inner.method, inner.params)
        elif method == CANCEL:
            self._cancel(params)
        elif method in INITS:
            raise _misuse("an initialization is a request")
        else:
            self.plain.neighbour.notify(method, params)

    def _successor_side(self, method: str) -> WireSide:
        if self.wrapped is None:
            who = "a client" if self.role == "client" else "an agent"
            raise _misuse(f"{method} is for proxies: {who} has no successor")
        return self.wrapped

    def _cancel(self, params: Payload | None) -> None:
        """A cancellation names an id of this connection; it is re-issued on the next hop, never
        tunnelled. Ids that are unknown or done are no mistake: answers and cancellations cross."""
        if self.connection is None or params is None:
            return
        try:
            id = _decode_cancel(params).requestId
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.report("dropped a notification", f"{CANCEL}: it names no request id")
            return
        call = self.connection.received.get(id)
        if call is not None:
            call.cancel()


class _Cancel(msgspec.Struct):
    requestId: int | str | None


_decode_cancel: Final = msgspec.json.Decoder(_Cancel).decode
_FOR_SERVERS: Final = frozenset({"mcp/connect", "mcp/message", "mcp/disconnect"})
"""What whoever offers an MCP server is asked. A client that offers none may not know how to refuse;
it is asked when the proxy that did was left out."""
_SPECIAL: Final = frozenset({*ENVELOPES, *INITS, CANCEL, "initialize"})
_CLIENTS: Final = frozenset({"client", "parent"})
_HELD_SIZE: Final = 300
"""What keeping a message costs, besides its params."""


def _misuse(problem: str) -> RequestError:
    return RequestError(INVALID_REQUEST, "Invalid request", problem)
