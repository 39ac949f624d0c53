"""Component that runs a `Proxy` or an `Agent` in the conductor's process.

It has no envelope and no ids: its two ports are objects (`plugin_port`). `scheduler` enforces the
lane rules (docs/ordering.md), `dispatch` calls the handlers, `plugin_runtime` has the functions
that `Plugin` methods call; this module has the plugin's life cycle (`lifespan`, start timeout,
stop).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from conductor.chainfile.model import CANCEL_TIMEOUT, START_TIMEOUT, STOP_TIMEOUT
from conductor.errors import ComponentExited, StartError, describe
from conductor.log import get_logger
from conductor.plugins.blocked_turns import BlockedTurns, busy_calls
from conductor.plugins.failure_log import FailureLog
from conductor.plugins.handler_call import handled_message
from conductor.plugins.plugin_code import line_of
from conductor.plugins.plugin_errors import (
    accept_exceptions_without_repr,
    contain_failure,
    first_exception,
    split_failure,
)
from conductor.plugins.plugin_runtime import AgentChainOpener, PluginRuntime
from conductor.plugins.scheduler import LaneScheduler
from conductor.proxy.base import Plugin
from conductor.proxy.peers import text
from conductor.proxy.session_tracking import end_sessions
from conductor.proxy.sessions import forget_all_sessions
from conductor.proxy.update_kinds import UpdateFilter
from conductor.routing.component import Blocker, Component, ComponentHost
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.port import Port
from conductor.routing.trace import Tracer
from conductor.schema.convert import is_schema_type, reader, unstructure
from conductor.supervision.restart_policy import Bypass, EndChain
from conductor.supervision.slow_setups import SLOW

__all__ = ["PluginComponent"]


@attrs.define(eq=False, repr=False)
class PluginComponent(Component):
    """Runs one plugin instance."""

    name: str
    plugin: Plugin
    role: Literal["proxy", "agent"]
    location: str | None = None
    start_timeout: float = START_TIMEOUT
    stop_timeout: float = STOP_TIMEOUT
    bypassed_on_failure: bool = False
    """Whether the chain goes on without this proxy when it fails."""
    required: bool = False
    """Whether the chain cannot run without it; also if its class says so."""
    lost: Callable[[ComponentExited], None] | None = None
    """Called with a failure, if a supervisor at the other end of a link restarts the plugin and
    answers its open requests; else the chain handles it."""
    turn_timeout: float = CANCEL_TIMEOUT
    """The `cancel_timeout` of an agent, in seconds."""
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
    def cancel_timeout(self) -> float:
        return self.turn_timeout

    @property
    def blocker(self) -> Blocker:
        return BlockedTurns(self.name, self._scheduler)

    @property
    def kind(self) -> Literal["plugin", "process", "remote"]:
        return "plugin"

    @property
    def place(self) -> str | None:
        return self.location

    @property
    def client_port(self) -> Port:
        return self._scheduler.client_port

    @property
    def agent_port(self) -> Port | None:
        return None if self.role == "agent" else self._scheduler.agent_port

    def filter_updates(self, accepts: UpdateFilter) -> None:
        """Give the plugin the updates that `accepts` returns true for, in the place of kinds."""
        self._scheduler.agent_port.filter_updates(accepts)

    def trace(self, tracer: Tracer) -> None:
        tracer.handled = handled_message
        for port in self._scheduler.ports:
            port.tracer = tracer
            tracer.trace(port, self.name, port.source)

    # -- life cycle --------------------------------------------------------------------------------

    def prepare(self, host: ComponentHost) -> None:
        self.host = self.failures.host = host
        self.runtime.attach(host, self, self.agent_chain_opener)
        accept_exceptions_without_repr()
        self.plugin._acp_runtime = self.runtime

    async def run(self) -> None:
        failures: list[BaseException] = []
        try:
            with self._run_scope:
                async with trio.open_nursery() as around:
                    around.start_soon(self._watch_start)
                    try:
                        await self._run_lifespan()
                    except BaseException as exc:  # a nursery asks for its repr, which may raise
                        contain_failure(exc, failures.append)
                    around.cancel_scope.cancel()
            for failure in failures:
                self._fail(failure)
        except BaseException as exc:
            contain_failure(exc, self._fail)
        finally:
            self._scheduler.close()
            if not self._answered_elsewhere:
                self._scheduler.aborted.answer()
            self.failures.close()
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
                text = "lifespan() raised trio.Cancelled, although nothing was cancelled"
                raise RuntimeError(text) from None
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
            raise StartError(self.name, reason, location=self.location)

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
            self._on_lost(ComponentExited(self.name, f"failed: {reason}", location=self.location))
        else:
            self._not_started(StartError(self.name, reason, location=self.location))

    def _not_started(self, error: StartError) -> None:
        self.host.component_failed(self, error)
        self._scheduler.aborted.answer(FailureErrors.of(error))

    def _on_lost(self, error: ComponentExited) -> None:
        if self.lost is not None:
            self._answered_elsewhere = True
            self.lost(error)
            return
        bypassed = self.bypassed_on_failure and self.role == "proxy"
        error.next, error.is_last = str(Bypass() if bypassed else EndChain()), not bypassed
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
