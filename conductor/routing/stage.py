"""Stages: what the conductor itself does to the messages of a link. Pure.

    neighbour ⇄ stage ⇄ stage ⇄ connection of the component

Each port of a link has its stages (`StagedPort`). A stage gets a message and `forward`, which
passes it on to the next stage; a stage that does not call it has taken the message. It names the
methods that it sees: for each, the stages that name it are compiled into one callable, anew when a
stage is inserted or removed here or in the neighbour, whose stages come next. So a message of any
other method costs nothing.

`ORDER` is the order of all stages. To add one, write its class in a module, add its row, and insert
it (`StagedPort.insert`) where its feature is set up. Ports of plugins have the first three only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, RawMember
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.port import Port

__all__ = [
    "EVERY",
    "ORDER",
    "ForwardBatch",
    "ForwardCancel",
    "ForwardNotification",
    "ForwardRequest",
    "ForwardResponse",
    "SeenRequests",
    "Stage",
    "StageMethod",
    "StagedPort",
]

ORDER: Final = (
    "observed plugin",  # plugins.observed_plugin: shows all to `acp-conductor try`
    "trace context",  # telemetry.propagation: each hop has a span of its own
    "trace",  # routing.trace: it has what the neighbour sends, whatever becomes of it
    "session branches",  # routing.session_branches: each session has its chain
    "startup gate",  # chain.startup_gate: messages wait until the chain is initialized
    "detached client",  # chain.detached_client: messages for a client wait until it returns
    "hold",  # routing.message_queue: messages wait while the component is started again
    "disconnected",  # routing.failure_errors: nothing is sent to a component that is gone
    "recorded answers",  # supervision.replay: repeated set-ups do not reach the successor
    "handler reports",  # supervision.handler_reports: an isolated plugin's reports name messages
    "withheld login",  # chain.login_methods: errors name no commands of this machine
    "lost sessions",  # routing.session_log: a restarted agent is not asked for these
    "bridge insertion",  # chain.bridge_insertion: the first set-up that needs the bridge
    "session log",  # routing.session_log: handshake and set-ups are kept for a restart
    "initialization",  # supervision.initialization: the conductor itself carries out the handshake
    "client capabilities",  # routing.capabilities: it is asked for what it has announced
    "questions",  # chain.client_turns: those of a cancelled turn are answered, and not asked
    "turns",  # supervision.turn_observer: for deadlines, cancellations and restarts
    "stalls",  # supervision.monitors: silent turns, unanswered requests
    "slow set-ups",  # supervision.monitors: what a session set-up waits for is named
    "prompts",  # chain.client_end: the client gets again what it was told in an earlier turn
    "settings",  # routing.session_settings: for a restart; after `turns`, which sets `call.session`
    "replayed history",  # supervision.replay: the client has seen it before the restart
    "own requests",  # supervision.replay: the conductor restores sessions in a restarted agent
    "session names",  # routing.session_names: a session set up anew has another id there
    "plugin info",  # plugins.isolation: an isolated plugin describes itself
    "proxy meta",  # routing.proxy_meta: an agent cannot forge what proxies tell each other
)
"""Names of the stages, and their modules; that nearest the neighbour first: messages to the
component pass them in this order, messages from it in the opposite one."""

ForwardRequest: TypeAlias = Callable[[InFlightRequest, str, Payload | None], None]
ForwardNotification: TypeAlias = Callable[[str, Payload | None], None]
ForwardBatch: TypeAlias = Callable[[NotificationBatch], None]
ForwardResponse: TypeAlias = Callable[[InFlightRequest, Payload | None, Payload | None], None]
ForwardCancel: TypeAlias = Callable[[InFlightRequest], None]
EVERY: Final = frozenset({"*"})
"""All methods, for `sent` and `received`. Methods that are named beside it have ways of their own,
so that `Stage.takes` may leave them out."""
StageMethod: TypeAlias = Literal[
    "send_request",
    "send_notification",
    "send_batch",
    "send_response",
    "send_cancel",
    "receive_request",
    "receive_notification",
    "receive_batch",
    "receive_response",
    "receive_cancel",
]
"""A kind of message: the method of a stage that gets it."""
_OF_SENT: Final[frozenset[StageMethod]] = frozenset(
    {"send_request", "send_notification", "send_batch", "receive_response", "send_cancel"}
)
"""Kinds of messages that a stage sees if their method is in its `sent`."""
_SINGLE: Final[Mapping[StageMethod, StageMethod]] = {
    "send_batch": "send_notification",
    "receive_batch": "receive_notification",
}
"""The kind of each notification of a batch."""


class Stage:
    """Base of stages: each method passes the message on.

    `sent` are the methods of the messages to the component that it sees, `received` those of the
    messages from it; on the link of a client, the client is the component. It also sees the
    responses to these requests, in the same port, and their cancellations; cancellations of the
    component's own requests only in the plain port, whichever port the requests have passed. No
    method waits, or raises.

    To answer a request to the component: `port.answer`. To answer one of the component:
    `port.respond`, whose response other stages see, or `call.source.respond`.
    """

    __slots__ = ("port",)

    name: str
    """Its row in `ORDER`."""
    port: StagedPort
    """The port that it is inserted in."""
    sent: frozenset[str] = frozenset()
    received: frozenset[str] = frozenset()

    def takes(self, kind: StageMethod, method: str) -> bool:
        """Whether it has to see messages of this kind and method, which is one that a stage names,
        or `*`. When that changes, it calls `port.changed`."""
        return getattr(type(self), kind) is not getattr(Stage, kind)

    def step(self, kind: StageMethod, method: str) -> Callable[..., None]:
        """What takes messages of this kind and method: its method of the kind's name."""
        found: Callable[..., None] = getattr(self, kind)
        return found

    def connected(self, neighbour: Port) -> None:
        """The port has got this neighbour."""

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        """A request to the component."""
        forward(call, method, params)

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        """A notification to the component."""
        forward(method, params)

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        """Notifications of one method to the component. A stage that only has `send_notification`
        gets each of them."""
        forward(notifications)

    def send_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        """The response to a request of the component."""
        forward(call, result, error)

    def send_cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        """The cancellation of a request to the component."""
        forward(call)

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        """A request of the component."""
        forward(call, method, params)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        """A notification of the component."""
        forward(method, params)

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        """Notifications of one method of the component. A stage that only has
        `receive_notification` gets each of them."""
        forward(notifications)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        """The response of the component, or one in its place."""
        forward(call, result, error)

    def receive_cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        """The cancellation of a request of the component."""
        forward(call)


class SeenRequests(Stage):
    """Shows the requests of the component in this port, and that they are answered: beside a stage
    of the plain port, those that a proxy sends to its successor."""

    __slots__ = ("_answered", "_asked", "name", "received")

    def __init__(
        self,
        name: str,
        methods: frozenset[str],
        asked: Callable[[InFlightRequest, Payload | None], None],
        answered: Callable[[InFlightRequest], None],
    ) -> None:
        self.name: str = name
        self.received: frozenset[str] = methods
        self._asked = asked
        self._answered = answered

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self._asked(call, params)
        forward(call, method, params)

    def send_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        self._answered(call)
        forward(call, result, error)


class StagedPort(Port):
    """A port with stages between its neighbour and its component.

    The methods of `Port` take messages for the component; a subclass delivers what has passed the
    stages: its methods are named `deliver_…`. Messages from the component have no methods: what
    reads them looks up their way in `received_…`.
    """

    __slots__ = (
        "_before",
        "_ends",
        "_onward",
        "_send_batch",
        "_send_cancel",
        "_send_notification",
        "_send_request",
        "_send_response",
        "_stages",
        "received_batches",
        "received_cancels",
        "received_notifications",
        "received_requests",
        "received_responses",
    )

    def __init__(self) -> None:
        super().__init__()
        self._stages: list[Stage] = []
        self._before: set[StagedPort] = set()
        """The ports whose received messages go on in this one."""
        self._ends: dict[StageMethod, _Route] = {
            "send_request": _Route(self.deliver_request),
            "send_notification": _Route(self.deliver_notification),
            "send_batch": _Route(self.deliver_batch),
            "send_response": _Route(self.deliver_response),
            "send_cancel": _Route(self.deliver_cancel),
            "receive_cancel": _Route(InFlightRequest.cancel),
        }
        """The ways of messages that have passed all stages."""
        self._onward: dict[tuple[str, StageMethod], _Route] = {}
        """The ways of messages from a stage on, as far as they were needed."""
        self.changed()

    def connect(self, neighbour: Port) -> None:
        super().connect(neighbour)
        if isinstance(neighbour, StagedPort):
            neighbour._before.add(self)
        for each in self._stages:
            each.connected(neighbour)
        self.changed()

    @property
    def stages(self) -> list[str]:
        """Names of its stages, in the order of `ORDER`."""
        return [each.name for each in self._stages]

    def insert(self, stage: Stage) -> None:
        """Let messages pass this stage from now on, at its place in `ORDER`."""
        stage.port = self
        if stage.name not in ORDER:
            raise LookupError(f"the stage {stage.name!r} has no row in `ORDER`")
        self._stages.append(stage)
        self._stages.sort(key=_place)
        self.changed()

    def remove(self, stage: Stage) -> None:
        """Take out a stage; without effect if it is not there."""
        self._stages = [each for each in self._stages if each is not stage]
        self.changed()

    def answer(
        self, stage: Stage, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        """Answer a request to the component in this stage: the response passes the stages that the
        request has passed."""
        self._from(stage, "receive_response", call.method)(call, result, error)

    def send(
        self, stage: Stage, call: InFlightRequest | None, method: str, params: Payload | None
    ) -> None:
        """Send a message to the component, of this stage itself or one that it has held back: it
        passes the stages after this one. `call` is `None` for a notification.

        The response to a request comes to `receive_response` of this one.
        """
        if call is None:
            self._from(stage, "send_notification", method)(method, params)
        else:
            self._from(stage, "send_request", method)(call, method, params)

    def send_batch(self, stage: Stage, notifications: NotificationBatch) -> None:
        """Send notifications of one method as `send` does."""
        self._from(stage, "send_batch", notifications.method)(notifications)

    def send_response(
        self, stage: Stage, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        """Send the response to a request of the component as `send` does."""
        self._from(stage, "send_response", call.method)(call, result, error)

    def pass_on(
        self, stage: Stage, call: InFlightRequest | None, method: str, params: Payload | None
    ) -> None:
        """Pass on a message of the component that this stage has held back: it passes the stages
        after this one. `call` is `None` for a notification."""
        if call is None:
            self._from(stage, "receive_notification", method)(method, params)
        else:
            self._from(stage, "receive_request", method)(call, method, params)

    def _from(self, stage: Stage, kind: StageMethod, method: str) -> Callable[..., None]:
        """The way of a message from this stage on."""
        route = self._onward.get((stage.name, kind))
        if route is None:
            place = _place(stage)
            if kind.startswith("send"):
                rest = [each for each in self._stages if _place(each) > place]
            else:
                rest = [each for each in self._stages if _place(each) < place]
            route = self._onward[stage.name, kind] = self._way(kind, rest)
        return route.get(method, route.others)

    def cancel_before(self, stage: str, call: InFlightRequest) -> None:
        """Show the cancellation of a request that this stage has taken to those before it."""
        passed = [each for each in self._stages if _place(each) < ORDER.index(stage)]
        route = _route("send_cancel", passed, _Route(lambda call: None))
        route.get(call.method, route.others)(call)

    def changed(self) -> None:
        """Compile the ways of all messages anew."""
        stages = self._stages
        self._send_request = self._way("send_request", stages)
        self._send_notification = self._way("send_notification", stages)
        self._send_batch = self._way("send_batch", stages)
        self._send_response = self._way("send_response", stages)
        self._send_cancel = self._way("send_cancel", stages)
        self._compile_received()
        self._before = {each for each in self._before if each.neighbour is self}
        for each in self._before:
            each._compile_received()

    def _compile_received(self) -> None:
        """Compile the ways of received messages: they go on as those of the neighbour."""
        stages, beyond = self._stages, self.neighbour
        if isinstance(beyond, StagedPort):
            request, single = beyond._send_request, beyond._send_notification
            batch, response = beyond._send_batch, beyond._send_response
        else:
            request, single = _Route(beyond.request), _Route(beyond.notify)
            batch, response = _Route(beyond.notify_batch), _Route(beyond.respond)
        self._ends["receive_request"], self._ends["receive_notification"] = request, single
        self._ends["receive_batch"], self._ends["receive_response"] = batch, response
        self.received_requests: _Route = self._way("receive_request", stages)
        self.received_notifications: _Route = self._way("receive_notification", stages)
        self.received_batches: _Route = self._way("receive_batch", stages)
        self.received_responses: _Route = self._way("receive_response", stages)
        self.received_cancels: _Route = self._way("receive_cancel", stages)
        self._onward.clear()

    def _way(self, kind: StageMethod, stages: Sequence[Stage]) -> _Route:
        """The way of one kind of message through these stages, and on."""
        single = _SINGLE.get(kind)
        if single is None:
            return _route(kind, stages, self._ends[kind])
        return _batch_route(kind, single, stages, self._ends[kind], self._ends[single])

    # -- messages to the component -----------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        route = self._send_request
        route.get(method, route.others)(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        route = self._send_notification
        route.get(method, route.others)(method, params)

    def notify_batch(self, notifications: NotificationBatch) -> None:
        route = self._send_batch
        route.get(notifications.method, route.others)(notifications)

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        route = self._send_response
        route.get(call.method, route.others)(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        route = self._send_cancel
        route.get(call.method, route.others)(call)

    def deliver_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        raise NotImplementedError

    def deliver_notification(self, method: str, params: Payload | None) -> None:
        raise NotImplementedError

    def deliver_batch(self, notifications: NotificationBatch) -> None:
        raise NotImplementedError

    def deliver_response(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        raise NotImplementedError

    def deliver_cancel(self, call: InFlightRequest) -> None:
        raise NotImplementedError


def _place(stage: Stage) -> int:
    return ORDER.index(stage.name)


class _Route(dict[str, Callable[..., None]]):
    """The way of one kind of message: for each method that a stage names, and for all others."""

    __slots__ = ("others",)

    def __init__(self, others: Callable[..., None]) -> None:
        super().__init__()
        self.others: Callable[..., None] = others


def _route(kind: StageMethod, stages: Sequence[Stage], end: _Route) -> _Route:
    """The way through stages, which are in the order of `ORDER`, and on."""

    def through(steps: Sequence[Stage], method: str) -> Callable[..., None]:
        return _through(kind, method, steps, end.get(method, end.others))

    return _compiled(kind, stages, end, through)


def _batch_route(
    kind: StageMethod,
    single: StageMethod,
    stages: Sequence[Stage],
    end: _Route,
    single_end: _Route,
) -> _Route:
    """The way of batches of notifications, whose single notifications go on in `single_end`."""

    def through(steps: Sequence[Stage], method: str) -> ForwardBatch:
        passed = end.get(method, end.others)
        last = single_end.get(method, single_end.others)
        for index, stage in enumerate(steps):
            if stage.takes(kind, method):
                passed = partial(stage.step(kind, method), passed)
            elif stage.takes(single, method):
                each = _through(single, method, steps[: index + 1], last)
                passed = partial(_one_by_one, each)
        return passed

    return _compiled(kind, stages, end, through)


def _compiled(
    kind: StageMethod,
    stages: Sequence[Stage],
    end: _Route,
    through: Callable[[Sequence[Stage], str], Callable[..., None]],
) -> _Route:
    """`through` makes the way through the stages that see a method, the last one first."""
    last_first = stages[::-1] if kind.startswith("send") else stages
    seen = [(each, _seen(kind, each)) for each in last_first]
    of_every = [stage for stage, methods in seen if methods >= EVERY]
    found = _Route(through(of_every, "*"))
    for method in frozenset(end).union(*(methods for _, methods in seen)) - EVERY:
        steps = [stage for stage, methods in seen if methods >= EVERY or method in methods]
        found[method] = through(steps, method)
    return found


def _seen(kind: StageMethod, stage: Stage) -> frozenset[str]:
    """The methods of the messages of this kind that a stage sees."""
    return stage.sent if kind in _OF_SENT else stage.received


def _through(
    kind: StageMethod, method: str, steps: Sequence[Stage], end: Callable[..., None]
) -> Callable[..., None]:
    for stage in steps:
        if stage.takes(kind, method):
            end = partial(stage.step(kind, method), end)
    return end


def _one_by_one(forward: ForwardNotification, notifications: NotificationBatch) -> None:
    for each in notifications.params:
        forward(notifications.method, each)
