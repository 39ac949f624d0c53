"""A component that runs in the conductor's own process: a `Proxy` or an `Agent`.

It needs no envelope and no ids: its two sides are objects (`plugin_side`). `workers` keeps the lane
rules of `conductor.proxy`, `handling` runs the handlers; here is the plugin's life, and what it may
ask for while it lasts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import attrs
import trio

from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.components.base import Component, Host
from conductor.components.contract import Bypass, EndChain
from conductor.components.plugin_errors import contain, first_leaf, split
from conductor.components.plugin_nurseries import accept_exceptions_without_repr
from conductor.components.plugin_side import PluginSide
from conductor.components.plugin_turns import end_turn, holds_up_request, holds_up_turn
from conductor.components.stuck import cancelled_answer
from conductor.components.turns import current_turn
from conductor.components.workers import Workers
from conductor.connection.pump import HIGH_WATER
from conductor.errors import ComponentExited, StartError, describe
from conductor.log import Logger, get_logger
from conductor.proxy.base import Plugin
from conductor.proxy.peers import AgentPeer, Answered, ClientPeer, Tap
from conductor.proxy.sessions import forget_all
from conductor.routing.failure import Failure
from conductor.routing.sides import Side

__all__ = ["PluginComponent"]


@attrs.define(eq=False, repr=False)
class PluginComponent(Component):
    """Runs one plugin instance."""

    name: str
    plugin: Plugin
    role: Literal["proxy", "agent"]
    place: str | None = None
    start_timeout: float = 30.0
    stop_timeout: float = 5.0
    bypassed_on_failure: bool = False
    """Whether the chain goes on without this proxy when it fails."""
    lost: Callable[[ComponentExited], None] | None = None
    """Called when it has failed, where the other end of its wire decides what follows, and answers
    what it owed."""
    turn_timeout: float = CANCEL_TIMEOUT
    """Of an agent: its `cancel_timeout`."""
    client: ClientPeer = attrs.field(init=False)
    agent: AgentPeer = attrs.field(init=False)
    _workers: Workers = attrs.field(init=False)
    _log: Logger = attrs.field(init=False)
    host: Host = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _early: list[tuple[Any, tuple[Any, ...]]] = attrs.field(factory=list, init=False)
    """What `lifespan` wants to be run, before anything can be."""
    _written: int = attrs.field(default=0, init=False)
    """Bytes of the notifications that it wrote since somebody looked who reads them."""
    _life: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _ready: bool = attrs.field(default=False, init=False)
    _answered_elsewhere: bool = attrs.field(default=False, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._log = get_logger(component=self.name)
        self._workers = Workers(
            self.name, self.plugin, self.start_timeout, self._log, is_agent=self.role == "agent"
        )
        self.client = ClientPeer("client", *self._means(self._workers.client_side))
        self.agent = AgentPeer("agent", *self._means(self._workers.agent_side))

    @property
    def cancel_timeout(self) -> float:
        return self.turn_timeout

    def holds_up_turn(self, session: str) -> bool:
        return holds_up_turn(self._workers, session)

    def holds_up_request(self, method: str) -> bool:
        return holds_up_request(self._workers, method)

    def end_turn(self, session: str, *, version_2: bool) -> bool:
        answer = partial(cancelled_answer, name=self.name, version_2=version_2)
        return end_turn(self._workers, session, answer)

    @property
    def client_side(self) -> Side:
        return self._workers.client_side

    @property
    def agent_side(self) -> Side | None:
        return None if self.role == "agent" else self._workers.agent_side

    # -- life --------------------------------------------------------------------------------------

    def prepare(self, host: Host) -> None:
        self.host = host
        accept_exceptions_without_repr()
        self.plugin._acp_runtime = self

    async def run(self) -> None:
        failures: list[BaseException] = []
        try:
            with self._life:
                async with trio.open_nursery() as around:
                    around.start_soon(self._watch_start)
                    try:
                        await self._live()
                    except BaseException as exc:  # a nursery asks for its repr, which may raise
                        contain(exc, failures.append)
                    around.cancel_scope.cancel()
            for failure in failures:
                self._fail(failure)
        except BaseException as exc:
            contain(exc, self._fail)
        finally:
            self._workers.close()
            if not self._answered_elsewhere:
                self._workers.settle()
            forget_all(self.plugin)
            self._ended.set()
            self._workers.settled.set()  # whoever waits for the last handler waits no longer

    async def _live(self) -> None:
        """Handlers run inside of `lifespan()`, which is left without haste when they are done."""
        try:
            async with self.plugin.lifespan():
                await self._handle_messages()
        except BaseException as exc:
            failure, _ = split(exc)
            if isinstance(failure, trio.Cancelled):  # the nursery around would drop it
                text = "lifespan() raised trio.Cancelled, although nothing was cancelled"
                raise RuntimeError(text) from None
            raise

    async def _handle_messages(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery, self._ready = nursery, True
                self._workers.open(nursery, self.host.flusher)
                for function, args in self._early:
                    nursery.start_soon(self._beside, function, args)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._workers.close()

    async def _watch_start(self) -> None:
        await trio.sleep(self.start_timeout)
        if not self._ready:
            reason = f"lifespan() did not yield within {self.start_timeout:g} s"
            raise StartError(self.name, reason, place=self.place)

    def _fail(self, exc: BaseException) -> None:
        cause = first_leaf(exc)
        if isinstance(cause, StartError):
            self._not_started(cause)
            return
        self._log.error("plugin failed", exc_info=cause)
        if self._stop.is_set():
            return  # it was to end, and has ended
        reason = describe(cause)
        if self._ready:
            self._lost(ComponentExited(self.name, f"failed: {reason}", place=self.place))
        else:
            self._not_started(StartError(self.name, reason, place=self.place))

    def _not_started(self, error: StartError) -> None:
        self.host.component_failed(self, error)
        self._workers.settle(Failure.of(error))

    def _lost(self, error: ComponentExited) -> None:
        if self.lost is not None:
            self._answered_elsewhere = True
            self.lost(error)
            return
        bypassed = self.bypassed_on_failure and self.role == "proxy"
        error.next, error.is_last = str(Bypass() if bypassed else EndChain()), not bypassed
        self._workers.settle(Failure.of(error))
        if bypassed:
            self.host.bypass(self, error)
        else:
            self.host.component_failed(self, error)

    def close_input(self) -> None:
        """`wait_finished` tells when the last message has been handled; what waits for an answer
        waits in vain by now."""
        self._workers.handling.give_up_waiting()

    async def wait_finished(self) -> None:
        """Wait until nothing is being handled any more."""
        while self._workers.busy and not self._ended.is_set():
            if self._workers.settled.is_set():
                self._workers.settled = trio.Event()
            await self._workers.settled.wait()
        self._stop.set()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self._stop.set()

    def kill(self) -> None:
        self._stop.set()
        self._life.cancel()

    def backlog(self) -> int:
        return max(side.lane.size for side in self._workers.sides)

    # -- Runtime: what the plugin may do -----------------------------------------------------------

    def release_lane(self) -> None:
        turn = current_turn.get()
        if turn is not None and not turn.done and not turn.observing:
            self._workers.release(turn)

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        if not self._ready:
            self._early.append((function, args))
        elif self._nursery is not None and not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._beside, function, args)

    @property
    def answering(self) -> bool:
        turn = current_turn.get()
        return turn is not None and not turn.done and turn.answering is not None

    def defer(self, cancelled: Callable[[], None]) -> Answered:
        return self._workers.handling.defer(cancelled)

    async def wait_room(self) -> None:
        await self.host.edge_gate().wait()

    def made_room(self) -> None:
        self.host.flusher.made_room()

    def tap(self, source: Literal["client", "agent"], method: str, tap: Tap) -> Callable[[], None]:
        workers = self._workers
        side = workers.client_side if source == "client" else workers.agent_side
        return side.add_tap(method, tap)

    async def _wait_for_readers(self, size: int) -> None:
        """Wait, after `size` bytes more, while too much waits for others (invariant 5)."""
        self._written += size
        if self._written > HIGH_WATER >> 5:  # looking is not free
            self._written = 0
            self.host.flusher.flush()
            if (gate := self.host.gate(self)) is not None:
                await gate.wait()
            await trio.lowlevel.checkpoint()

    async def _beside(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        current_turn.set(None)
        try:
            await function(*args)
        except BaseException as exc:
            contain(exc, partial(self._task_failed, function))

    def _task_failed(self, function: Callable[..., Awaitable[Any]], exc: BaseException) -> None:
        try:
            task = str(function.__qualname__)
        except Exception:  # a callable object of the plugin's
            task = type(function).__name__
        self._log.error("task failed", task=task, exc_info=exc)

    def _means(self, side: PluginSide) -> tuple[Any, ...]:
        """What a peer sends and listens with."""
        return (
            partial(self._workers.request, side),
            partial(self._workers.notify, side),
            partial(self._workers.ask, side),
            side.add_tap,
            self.release_lane,
            self._wait_for_readers,
        )
