"""Component that runs a `Proxy` or an `Agent` in the conductor's process.

It has no envelope and no ids: its two ports are objects (`plugin_port`). `scheduler` enforces the
lane rules (docs/ordering.md), `dispatch` calls the handlers, `plugin_runtime` has the functions
that `Plugin` methods call; this module has the plugin's life cycle (`lifespan`, start timeout,
stop), and what it has of cancelled turns (`BlockedTurns`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from conductor.acp import PROMPT, SESSION_CANCEL, session_id_of
from conductor.chainfile.model import CANCEL_TIMEOUT, START_TIMEOUT, STOP_TIMEOUT
from conductor.errors import ComponentExited, StartError, describe
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import get_logger
from conductor.plugins.failures import (
    FailureLog,
    contain_failure,
    first_exception,
    split_failure,
)
from conductor.plugins.handler_call import HandlerCall, handled_message
from conductor.plugins.lane import LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.plugin_code import line_of
from conductor.plugins.plugin_port import PluginPort
from conductor.plugins.plugin_runtime import AgentChainOpener, PluginRuntime
from conductor.plugins.scheduler import LaneScheduler
from conductor.proxy.base import Plugin
from conductor.proxy.peers import text
from conductor.proxy.session_tracking import end_sessions
from conductor.proxy.sessions import forget_all_sessions
from conductor.routing.component import Blocker, Component, ComponentHost
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.port import Port
from conductor.routing.trace import Tracer
from conductor.schema.convert import is_schema_type, reader, unstructure
from conductor.supervision.cancel_watch import cancelled_answer
from conductor.supervision.deadlines import SLOW
from conductor.supervision.restart_policy import BYPASS, END_CHAIN

__all__ = ["PluginComponent"]


@attrs.define(eq=False, repr=False)
class PluginComponent(Component):
    """Runs one plugin instance."""

    name: str
    plugin: Plugin
    role: Literal["proxy", "agent"]
    place: str | None = None
    start_timeout: float = START_TIMEOUT
    stop_timeout: float = STOP_TIMEOUT
    bypassed_on_failure: bool = False
    """Whether the chain goes on without this proxy when it fails."""
    required: bool = False
    """Whether the chain cannot run without it; also if its class says so."""
    lost: Callable[[ComponentExited], None] | None = None
    """Called with a failure, if a supervisor at the other end of a link restarts the plugin and
    answers its open requests; else the chain handles it."""
    cancel_timeout: float = CANCEL_TIMEOUT
    agent_chain_opener: AgentChainOpener | None = None
    """For `Plugin.open_agent`; the package `chain` provides it."""
    runtime: PluginRuntime = attrs.field(init=False)
    _scheduler: LaneScheduler = attrs.field(init=False)
    failures: FailureLog = attrs.field(init=False)
    host: ComponentHost = attrs.field(init=False)
    _run_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _ready: bool = attrs.field(default=False, init=False)
    _answered_elsewhere: bool = attrs.field(default=False, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.required = self.required or self.plugin.required
        log = get_logger(component=self.name)
        self.failures = FailureLog(self.name, self.plugin, log)
        self._scheduler = LaneScheduler(
            self.name,
            self.plugin,
            self.start_timeout,
            self.failures,
            is_agent=self.role == "agent",
        )
        self.runtime = PluginRuntime(self._scheduler, required=self.required)

    @property
    def blocker(self) -> Blocker:
        return BlockedTurns(self.name, self._scheduler)

    @property
    def kind(self) -> Literal["plugin", "process", "remote"]:
        return "plugin"

    @property
    def client_port(self) -> Port:
        return self._scheduler.client_port

    @property
    def agent_port(self) -> Port | None:
        return None if self.role == "agent" else self._scheduler.agent_port

    def trace(self, tracer: Tracer) -> None:
        tracer.handled = handled_message
        for port in self._scheduler.ports:
            port.tracer = tracer
            tracer.trace(port, self.name, port.source)

    # -- life cycle --------------------------------------------------------------------------------

    def prepare(self, host: ComponentHost) -> None:
        self.host = self.failures.host = host
        self.runtime.attach(host, self, self.agent_chain_opener)
        self.plugin._acp_runtime = self.runtime

    async def run(self) -> None:
        try:
            with self._run_scope:
                async with trio.open_nursery() as around:
                    around.start_soon(self._watch_start)
                    await self._run_lifespan()
                    around.cancel_scope.cancel()
        except BaseException as exc:
            contain_failure(exc, self._fail)
        finally:
            self._scheduler.close()
            if not self._answered_elsewhere:
                self._scheduler.aborted.answer()
            forget_all_sessions(self.plugin)
            self._ended.set()
            self._scheduler.became_idle.set()  # ends `wait_drained`

    async def _run_lifespan(self) -> None:
        """Run the handlers inside `lifespan()`; its exit is not cancelled by a normal stop."""
        try:
            _load_for_messages(self.plugin)
            async with self.plugin.lifespan():
                await self._handle_messages()
        except BaseException as exc:
            failure, _ = split_failure(exc)
            if isinstance(failure, trio.Cancelled):  # the nursery around would drop it
                told = "lifespan() raised trio.Cancelled, although nothing was cancelled"
                raise RuntimeError(told) from None
            raise

    async def _handle_messages(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._ready = True
                self._scheduler.open(nursery, self.host.flusher)
                self.runtime.open(nursery)
                await self._stop.wait()
                await end_sessions(self.plugin)
                nursery.cancel_scope.cancel()
        finally:
            self.runtime.close()
            self._scheduler.close()

    async def _watch_start(self) -> None:
        slow = min(SLOW, self.start_timeout)
        await trio.sleep(slow)
        if not self._ready and slow < self.start_timeout:
            log = get_logger(component=self.name)
            log.warning("component slow to start", waits_for="its lifespan()")
        await trio.sleep(self.start_timeout - slow)
        if not self._ready:
            reason = f"lifespan() did not yield within {self.start_timeout:g} s"
            raise StartError(self.name, reason, location=self.place)

    def _fail(self, exc: BaseException) -> None:
        cause = first_exception(exc)
        if isinstance(cause, StartError):
            self._not_started(cause)
            return
        is_stopping = self._stop.is_set()
        self.failures.report("plugin failed", cause, tells=is_stopping)
        if is_stopping:
            return
        reason = describe(cause) + line_of(cause)
        if self._ready:
            self._on_lost(ComponentExited(self.name, f"failed: {reason}", location=self.place))
        else:
            self._not_started(StartError(self.name, reason, location=self.place))

    def _not_started(self, error: StartError) -> None:
        self.host.component_failed(self, error)
        self._scheduler.aborted.answer(FailureErrors.of(error))

    def _on_lost(self, error: ComponentExited) -> None:
        if self.lost is not None:
            self._answered_elsewhere = True
            self.lost(error)
            return
        bypassed = self.bypassed_on_failure and self.role == "proxy"
        error.next, error.is_last = (BYPASS if bypassed else END_CHAIN).text, not bypassed
        self._scheduler.aborted.answer(FailureErrors.of(error))
        if bypassed:
            self.host.bypass(self, error)
        else:
            self.host.component_failed(self, error)

    def fail_requests(self, failure: FailureErrors) -> None:
        if self.role == "agent":  # a proxy gets the errors of the requests that it has sent on
            self._scheduler.aborted.answer(failure)
            self.terminate()

    def close_input(self) -> None:
        """Nothing to close: `wait_drained` handles what has arrived."""

    async def wait_drained(self) -> None:
        """Wait until no message is handled or queued.

        Handlers that still wait for a response when the lanes are empty are cancelled: a response
        that has arrived, such as the error of a component that has ended, is handled before.
        """
        while self._scheduler.busy and not self._ended.is_set():
            if not self._scheduler.holds_lane:
                self._scheduler.dispatcher.cancel_awaiting_handlers()
            if self._scheduler.became_idle.is_set():
                self._scheduler.became_idle = trio.Event()
            await self._scheduler.became_idle.wait()
        self._stop.set()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._stop.set()

    def kill(self) -> None:
        self._stop.set()
        self._run_scope.cancel()

    def busy_handler(self) -> dict[str, str]:
        return next((call.fields() for call in busy_calls(self._scheduler)), {})

    def backlog(self) -> int:
        return max(port.lane.size for port in self._scheduler.ports)


@attrs.frozen(eq=False)
class BlockedTurns(Blocker):
    """What one plugin has of cancelled turns and requests, and their forced end.

    A plugin blocks a request while its handler waits for no response, after `Plugin.defer`, and
    while it is queued in a lane; a prompt also while its handler waits for anything but the
    successor's answer to it. It blocks a turn, too, if the cancellation or the end of the turn is
    queued in a lane that a handler holds.
    """

    name: str
    scheduler: LaneScheduler

    def cancelled_since(self, session: str) -> float | None:
        to_agent, to_client = map(self._lane, self.scheduler.ports)
        blocks = (
            bool(self._prompts(session))
            or any(_is(item, SESSION_CANCEL, session) for item in to_agent)
            or any(_ends_turn(item, session) for item in to_client)
        )
        return float("-inf") if blocks else None

    def end_turn(self, session: str, until: float, problem: str, *, version_2: bool) -> bool:
        """A queued cancellation is forwarded past the handler that holds its lane."""
        prompts = self._prompts(session)
        for call in prompts:
            self.end_request(call, *cancelled_answer(PROMPT, self.name, version_2=version_2))
        client_port, agent_port = self.scheduler.ports
        for item in client_port.lane.waiting():
            if type(item) is LaneNotification and _is(item, SESSION_CANCEL, session):
                client_port.lane.remove(item)
                agent_port.neighbour.notify(item.method, item.params)
        return bool(prompts)

    def requests(self) -> list[InFlightRequest]:
        return [call for call in self._held() if call.cancelled and not self._awaited(call)]

    def end_request(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if not self.scheduler.dispatcher.answer_for(call, result, error):
            for port in self.scheduler.ports:
                for item in port.lane.waiting():
                    if type(item) is LaneRequest and item.call is call:
                        item.answered = True
                        port.queued.pop(call, None)
                        port.neighbour.respond(call, result, error)

    def _held(self) -> dict[InFlightRequest, LaneItem]:
        """The unanswered requests that handlers have, that are deferred, or that are queued."""
        items = [
            *(
                each.item
                for each in self.scheduler.dispatcher.running.values()
                if each.response_state is not None and not each.response_state.answered
            ),
            *(item for port in self.scheduler.ports for item in port.lane.waiting()),
        ]
        return {
            item.call: item for item in items if type(item) is LaneRequest and not item.answered
        }

    def _awaited(self, call: InFlightRequest) -> frozenset[InFlightRequest]:
        """The requests that the handler of a request waits for."""
        handler_call = self.scheduler.dispatcher.running.get(call)
        return frozenset() if handler_call is None else handler_call.awaited

    def _prompts(self, session: str) -> list[InFlightRequest]:
        """The prompts of this session that are blocked here."""
        found = [call for call, item in self._held().items() if _is(item, PROMPT, session)]
        return [
            call for call in found if PROMPT not in (each.method for each in self._awaited(call))
        ]

    def _lane(self, port: PluginPort) -> list[LaneItem]:
        """The messages of a port's lane: the one being handled, then those queued."""
        call = self.scheduler.last_handlers.get(port.lane)
        is_held = call is not None and not call.done and call.lane is port.lane
        return [*([call.item] if call is not None and is_held else []), *port.lane.waiting()]


def busy_calls(scheduler: LaneScheduler) -> set[HandlerCall]:
    """The handlers of requests, and those that hold a lane, that wait for no response."""
    calls = {*scheduler.dispatcher.running.values(), *scheduler.last_handlers.values()}
    return {call for call in calls if not call.done and not call.awaited}


def _is(item: LaneItem, method: str, session: str) -> bool:
    if type(item) is LaneResponse or item.method != method:
        return False
    return session_id_of(item.params) == session


def _ends_turn(item: LaneItem, session: str) -> bool:
    """Whether it may end a turn: the response to a prompt, or in version 2 an update."""
    if type(item) is LaneResponse:
        return item.call.method == PROMPT
    return _is(item, SESSION_UPDATE, session) and b"state_update" in (item.params or b"")


def _load_for_messages(plugin: Plugin) -> None:
    """Load what the first message would load: the types of the handlers, and that of `text`.

    The schema takes 100 ms, while other components start.
    """
    module = sys.modules.get(type(plugin).__module__)
    if module is not None and any(value is text for value in vars(module).values()):
        unstructure(text(""))
    for handler in plugin._acp_handlers:
        for annotation in (handler.annotation, handler.result):
            if is_schema_type(annotation):
                reader(annotation)
