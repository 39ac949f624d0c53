"""A connection as a component of the chain: its one or two sides, its dialect, its envelope.

A proxy that is a process has one connection that carries two peers (design §4): plain messages are
traffic with its predecessor, `proxy/successor` is traffic with its successor. A client or an agent
has only the plain side; a conductor above us (proxy mode) has both, being our client and, in the
envelope, our successor. The wire stays in its place when the process behind it is replaced.

Here is what comes from the peer, and when it comes and goes; `wire_side` has what is sent to it,
`special` what is for the conductor itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

import attrs
import msgspec

from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.connection.runs import UPDATE, Run
from conductor.errors import RequestError, details_are_withheld
from conductor.frames import Malformed
from conductor.messages import INTERNAL_ERROR, Payload, encode_error, error_of
from conductor.routing.envelope import DIALECTS, INITS, Dialect
from conductor.routing.failure import Failure
from conductor.routing.held import Holding
from conductor.routing.marks import MARKED_ANSWERS, may_have_mark, without_marks
from conductor.routing.recollection import REMEMBERED, Recollection
from conductor.routing.special import SPECIAL, special_notification, special_request, special_run
from conductor.routing.wire_side import CLIENTS, PROMPT, SESSION_CANCEL, WireSide
from conductor.session_ids import session_of

__all__ = ["Init", "Observer", "Wire"]

_SUCCESSES: Final = frozenset({"session/prompt", "initialize", *INITS})
_NOT_RUNNING: Final = Failure.plain(encode_error(INTERNAL_ERROR, "The component is not running"))
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

    def sent_back(self, method: str) -> None:
        """The component sent an init to its predecessor."""

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


class Turns(Protocol):
    """Wants to see the turns of a component, and what cancels them; no updates in version 1.

    For a client's wire, the component is the chain behind it.
    """

    reports_states: bool
    """Version 2: whether updates are shown, for the states among them."""

    def on_prompt(self, call: Call, params: Payload | None) -> None:
        """The component gets a prompt."""

    def on_cancel(self, params: Payload | None) -> None:
        """The component gets `session/cancel`."""

    def on_withdrawn(self, call: Call) -> None:
        """The component gets `$/cancel_request`."""

    def on_answered(self, call: Call) -> None:
        """The component answered, or was answered for."""

    def on_run(self, run: Run) -> None:
        """The component sent several notifications of one method."""

    def on_notification(self, method: str, params: Payload | None) -> None:
        """The component sent a notification."""


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
    why_gone: Failure = _NOT_RUNNING
    silent: bytes | None = None
    """The error for requests to a peer that has ended its stream."""
    initialized: bool = False
    """Whether a client, or a parent, has its answer to `initialize`."""
    recollection: Recollection = attrs.field(factory=Recollection)
    held: Holding | None = None
    """What waits while the component is started again; `None` while it runs."""
    answers: dict[str, bytes] = attrs.field(factory=dict)
    """Results for requests to the successor that are answered from the record (`restoring`)."""
    observer: Observer | None = None
    turns: Turns | None = None
    """Of the component."""
    client_turns: Turns | None = None
    """Of a client: its turns with the whole chain."""
    succeeded: Callable[[], None] | None = None
    """Called when the component has initialized, or answered a prompt, without an error."""
    interceptor: Callable[[Call, str, Payload | None], bool] | None = None
    """Asked first about a request of `REMEMBERED`; true if it has taken care of it."""
    gate: Callable[[str, Payload | None], None] | None = None
    """Called with each request and notification of the peer before anything else sees it; raises
    `RequestError` to refuse it."""
    about_plugin: Callable[[Payload | None], None] | None = None
    """Called with what an isolated plugin tells of its class."""
    lost: set[str] = attrs.field(factory=set)
    """Sessions that a restarted agent does not know any more, until somebody has been told so."""
    swallowed: str | None = None
    """A session whose updates are dropped: the client has seen them before."""
    removes_marks: bool = False
    """Whether marks of proxies are removed from what the peer sends: of an agent behind proxies."""
    plain: WireSide = attrs.field(init=False)
    wrapped: WireSide | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plain = WireSide(self, wrapped=False)
        has_successor = self.role in ("proxy", "parent")
        self.wrapped = WireSide(self, wrapped=True) if has_successor else None

    def backlog(self) -> int:
        """Bytes that wait for the component."""
        unwritten = 0 if self.connection is None else self.connection.outbox.size
        return unwritten if self.held is None else unwritten + self.held.size

    def start_holding(self) -> None:
        """From now on, keep what is sent to the component until `release`."""
        self.held = Holding()

    def release(self) -> None:
        """The component runs again, or never will: what waited goes to it, in order."""
        held, self.held = self.held, None
        if held is not None:
            held.release()

    def pass_by(self) -> None:
        """The component is left out of the chain: what waited for it goes past it, in order."""
        held, self.held = self.held, None
        if held is not None:
            held.pass_by(self)

    def give_up(self, call: Call, reason: str) -> None:
        """Answer a call in the component's place with an error, and let the component know."""
        self.plain.cancel(call)
        self.answer_for(call, None, encode_error(INTERNAL_ERROR, reason, {"component": self.name}))

    def answer_for(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """Answer a call in the component's place; a late answer of its own is dropped."""
        connection = self.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        del connection.sent[call.target_id]
        self.on_answer(call, result, error)

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

    def disconnect(self, why: Failure) -> None:
        """The peer is gone: answer what it owed with the errors of `why`, withdraw its requests."""
        connection, self.connection = self.connection, None
        self.why_gone = why
        if connection is None:
            return
        connection.lose_writing()
        self.recollection.forget_open()
        owed = list(connection.sent.values())
        connection.sent.clear()
        for call in owed:
            self.on_answer(call, None, why.answer(call.method, delivered=True))
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
        if self.gate is not None:
            try:
                self.gate(method, params)
            except RequestError as exc:
                call.source.respond(call, None, error_of(exc))
                return
        if method in SPECIAL:
            try:
                special_request(self, call, method, params)
            except RequestError as exc:
                self.report("refused a request", f"{method}: {exc.data or exc.message}")
                call.source.respond(call, None, error_of(exc))
        else:
            if self.role in CLIENTS and method in REMEMBERED:
                try:
                    self.recollection.asked(call, method, params)
                except RequestError as exc:
                    call.source.respond(call, None, error_of(exc))
                    return
            if self.observer is not None:
                self.observer.on_asks(call, method, params)
            if self.client_turns is not None and method == PROMPT:
                self.client_turns.on_prompt(call, params)
            self.plain.neighbour.request(call, method, params)

    def on_run(self, run: Run) -> None:
        if (
            self.swallowed is not None
            or self.observer is not None
            or self.gate is not None
            or (self.removes_marks and run.has(may_have_mark))
        ):
            for each in run.params:
                self.on_notification(run.method, each)
            return
        if self.turns is not None and self.turns.reports_states:
            self.turns.on_run(run)
        if self.client_turns is not None and run.method == SESSION_CANCEL:
            for each in run.params:
                self.client_turns.on_cancel(each)
        if run.method in SPECIAL:
            special_run(self, run)
        else:
            self.plain.neighbour.notify_run(run)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if self.removes_marks and method == UPDATE and params is not None:
            params = without_marks(params)
        if self.gate is not None:
            try:
                self.gate(method, params)
            except RequestError as exc:
                self.report("refused a notification", f"{method}: {exc.message}")
                return
        if self.observer is not None:
            self.observer.on_heard(method, params)
        if self.turns is not None and self.turns.reports_states:
            self.turns.on_notification(method, params)
        if self.client_turns is not None and method == SESSION_CANCEL:
            self.client_turns.on_cancel(params)
        if method in SPECIAL:
            try:
                special_notification(self, method, params)
            except RequestError as exc:
                self.report("dropped a notification", f"{method}: {exc.data or exc.message}")
        elif self.swallowed is None or self.swallowed != session_of(params):
            self.plain.neighbour.notify(method, params)

    def on_answer(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if self.removes_marks and result is not None and call.method in MARKED_ANSWERS:
            result = without_marks(result)
        if call.method in REMEMBERED:
            self.recollection.answered(call, result)
        if self.succeeded is not None and result is not None and call.method in _SUCCESSES:
            self.succeeded()
        if self.observer is not None:
            self.observer.on_answered(call)
        if self.turns is not None:
            self.turns.on_answered(call)
        call.target.neighbour.respond(call, result, error)  # type: ignore[union-attr]

    def on_malformed(self, frame: Malformed, call: Call | None) -> None:
        if call is not None:
            message = f"{self.name} sent a malformed answer to this request"
            data = {"component": self.name, "reason": frame.reason}
            self.on_answer(call, None, encode_error(INTERNAL_ERROR, message, data))
        excerpt = frame.excerpt
        if self.role in CLIENTS and details_are_withheld():
            excerpt = ""  # what a remote client says is not for the log
        self.report("not a message", f"{frame.reason}: {excerpt}" if excerpt else frame.reason)
