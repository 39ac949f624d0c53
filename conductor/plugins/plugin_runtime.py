"""The running chain as one plugin sees it: the functions that `Plugin` methods call.

Implements `conductor.proxy.base.Runtime`: peers, tasks beside the handlers, deferred answers,
taps, back-pressure, and chains of second agents. `current_handler_call` tells which handler calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Literal, Protocol, cast

import trio

from conductor.errors import LocalProtocolError
from conductor.plugins.failures import FailureLog, contain_failure
from conductor.plugins.handler_call import TaskBeside, current_handler_call, leave_handler_call
from conductor.plugins.plugin_port import PluginPort
from conductor.plugins.scheduler import LaneScheduler
from conductor.proxy.base import Plugin
from conductor.proxy.peers import AgentPeer, ClientPeer, DeferredAnswer, NotificationTap
from conductor.proxy.second_agent import AgentConnection, AgentSource
from conductor.proxy.sessions import chain_info
from conductor.routing.component import Component, ComponentHost
from conductor.transport.io_loop import HIGH_WATERMARK

__all__ = ["AgentChainOpener", "PluginRuntime"]


class AgentChainOpener(Protocol):
    """Runs a chain for a second agent; see `SecondAgentHost.open_agent_chain`."""

    def __call__(
        self, source: AgentSource, *, name: str | None, env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[tuple[str, AgentConnection]]: ...


def _task_name(function: Callable[..., object]) -> str:
    try:
        return str(function.__qualname__)
    except Exception:  # a callable object of the plugin
        return type(function).__name__


class PluginRuntime:
    """The runtime of one plugin; usable after `attach`."""

    def __init__(self, scheduler: LaneScheduler, *, required: bool) -> None:
        self.name: str = scheduler.name
        self.plugin: Plugin = scheduler.plugin
        self.scheduler: LaneScheduler = scheduler
        self.failures: FailureLog = scheduler.failures
        self.required = required
        self.client: ClientPeer = ClientPeer("client", *self._peer_functions(scheduler.client_port))
        of_agent = self._peer_functions(scheduler.agent_port)
        self.agent: AgentPeer = AgentPeer(
            "agent", *(*of_agent, lambda: chain_info(self.plugin).turns)
        )
        self._nursery: trio.Nursery | None = None
        self._queued_tasks: list[tuple[Any, tuple[Any, ...]]] | None = []
        """Tasks that `lifespan` starts before its nursery exists; `None` afterwards."""
        self._written = 0
        """Bytes of notifications written since the read gate was last checked."""

    def attach(
        self, host: ComponentHost, component: Component, opener: AgentChainOpener | None
    ) -> None:
        """Connect the plugin, which runs as `component`, with its chain."""
        self._host, self._component, self._agent_chain_opener = host, component, opener

    def open(self, nursery: trio.Nursery) -> None:
        """Run tasks in this nursery, the queued ones first."""
        self._nursery = nursery
        queued, self._queued_tasks = self._queued_tasks or [], None
        for function, args in queued:
            nursery.start_soon(self._run_beside, function, args)

    def close(self) -> None:
        """Start no more tasks."""
        self._nursery = None

    def release_lane(self) -> None:
        handler_call = current_handler_call.get()
        if handler_call is not None and not handler_call.done and not handler_call.is_observer_call:
            self.scheduler.release(handler_call)

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        if self._queued_tasks is not None:
            self._queued_tasks.append((function, args))
        elif self._nursery is not None and not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._run_beside, function, args)

    def after_answer(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        handler_call = current_handler_call.get()
        if handler_call is None or handler_call.done or handler_call.response_state is None:
            raise LocalProtocolError("after_answer() is for the handler of a request")
        handler_call.after_answer += ((function, args),)

    def handler_failed(self, exc: BaseException, **fields: str) -> None:
        handler_call = current_handler_call.get()
        if handler_call is not None and self.failures.error_of_peer(handler_call, exc) is not None:
            return
        plugin = type(self.plugin).__name__
        self.failures.report("handler failed", exc, plugin=plugin, **cast(dict[str, Any], fields))

    def open_agent_chain(
        self, source: AgentSource, *, name: str | None, env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[tuple[str, AgentConnection]]:
        if self._agent_chain_opener is None:
            raise LocalProtocolError(f"{self.name}: this chain cannot open second agents")
        return self._agent_chain_opener(source, name=name, env=env)

    @property
    def answering(self) -> bool:
        handler_call = current_handler_call.get()
        return (
            handler_call is not None
            and not handler_call.done
            and handler_call.response_state is not None
        )

    def defer(self, on_cancelled: Callable[[], None]) -> DeferredAnswer:
        return self.scheduler.dispatcher.defer(on_cancelled)

    async def wait_room(self) -> None:
        await self._host.edge_read_gate().wait()

    def made_room(self) -> None:
        self._host.flusher.made_room()

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]:
        scheduler = self.scheduler
        port = scheduler.client_port if source == "client" else scheduler.agent_port
        return port.add_tap(method, tap)

    async def _wait_for_readers(self, size: int) -> None:
        """Add `size` bytes; wait while the chain's backlog is above the high watermark."""
        self._written += size
        if self._written > HIGH_WATERMARK >> 5:  # the check is not free
            self._written = 0
            self._host.flusher.flush()
            if (read_gate := self._host.read_gate(self._component)) is not None:
                await read_gate.wait()
            await trio.lowlevel.checkpoint()

    async def _run_beside(
        self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> None:
        task = leave_handler_call()
        try:
            await function(*args)
        except BaseException as exc:
            contain_failure(exc, partial(self._task_failed, function, task))
        finally:
            task.done = True

    def _task_failed(
        self, function: Callable[..., Awaitable[Any]], task: TaskBeside, exc: BaseException
    ) -> None:
        name, answers = _task_name(function), filter(None, (task.answer,))
        if self.failures.error_of_answerer(name, answers, exc) is None:
            self.failures.report("task failed", exc, task=name)

    def _peer_functions(self, port: PluginPort) -> tuple[Any, ...]:
        """The functions that `ClientPeer` and `AgentPeer` call."""
        return (
            partial(self.scheduler.outgoing.request, port),
            partial(self.scheduler.outgoing.notify, port),
            partial(self.scheduler.outgoing.ask, port),
            port.add_tap,
            self.release_lane,
            self._wait_for_readers,
        )
