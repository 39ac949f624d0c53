"""Ordered end of a chain: answer what is open, stop the components, write the rest to the client.

In: the `Ending`. Out: every request of the client is answered, and every component has ended,
except for plugins that were given up.

Order of the end: running turns are cancelled and have `_CANCEL_TIMEOUT` seconds to end, requests in
flight are answered if the client closed its output, the components' inputs are closed one after the
other, components that remain are ended, open requests are answered with an error, and the client's
write buffer is flushed. Inputs are closed from the client to the agent, which gets what the client
has sent; after a component's failure the other way round, so that what the failure means for the
client reaches it through the proxies in between (in version 2 the end of a turn is an update).

Each component gets what the one before it still had to send. A process that does not end by itself
gets SIGTERM, then SIGKILL. A plugin is cancelled, and given up after its `stop_timeout`: it may
have a shielded task, wait for a thread, or catch `Cancelled`. The stop goes on without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import msgspec
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.client_end import ClientEnd
from conductor.chain.client_turns import ClientTurns
from conductor.chain.components import ChainComponents
from conductor.chain.startup_gate import StartupGate
from conductor.errors import ComponentError
from conductor.log import get_logger
from conductor.routing.component import Component
from conductor.routing.failure_errors import CHAIN_ENDED, FailureErrors

if TYPE_CHECKING:
    from conductor.chain.session_chains import SessionChains

__all__ = ["Ending", "Shutdown", "abandoned_plugins"]


class Ending(msgspec.Struct, frozen=True):
    """The reason why a chain ended."""

    reason: Literal["client", "stopped", "failed", "never started"]
    """"never started": the client sent `initialize`, but no start succeeded."""
    error: ComponentError | None = None


_CANCEL_TIMEOUT = 2.0
"""Seconds that agents have to end their turns after the cancellation, at most `stop_timeout`. Those
that react take much less: they abort a request to their model, and kill a command."""
_CLIENT_CHECK_INTERVAL = 0.1
"""Seconds between two checks whether the client still reads, and has its answers."""
_KILL_TIMEOUT, _FORCED_KILL_TIMEOUT = 3.0, 1.0
"""Seconds that components have to end after SIGKILL; a process with pipes that other processes hold
open takes two. The second is for a second stop request (`kill`)."""
_FINAL_WRITE_TIMEOUT = 5.0
"""Seconds that the client has to read the rest of the write buffer at the end."""

_MIN_PATIENCE: Final = 1.0
"""Seconds that a plugin has at least, as in the watchdog: the machine may be busy."""
_MAX_CLEANUP: Final = 1.0
"""Seconds of the last part of a plugin's time, for its clean-up after the cancellation."""

log: Final = get_logger(component="conductor")


class Shutdown(msgspec.Struct, eq=False):
    """The end of one chain; `stop_timeout` is in seconds, from `begin`."""

    client: ClientEnd
    components: ChainComponents
    stop_timeout: float
    further: SessionChains | None = None
    turns: ClientTurns | None = None
    _began: float | None = None
    _given_up: set[Component] = msgspec.field(default_factory=set)
    _patient: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)

    def begin(self) -> None:
        """Count the time from now: EOF from the client, or another reason to end."""
        if self._began is None:
            self._began = trio.current_time()

    def hurry(self) -> None:
        """Wait for nothing from now on, after the components were killed."""
        self._patient.cancel()

    async def wait_started(self, gate: StartupGate) -> None:
        """Wait for the end of a start, which delivers what waits at the gate; at most
        `stop_timeout` seconds or until the client is gone."""
        with trio.move_on_at(self._deadline()):
            while gate.state == "starting":
                if self.client.transport.peer_closed_read():
                    return
                with trio.move_on_after(_CLIENT_CHECK_INTERVAL):
                    await self.client.flusher.wait_room()

    async def end_turns(self, ending: Ending) -> None:
        """Cancel the running turns and wait for their end, at most `_CANCEL_TIMEOUT` seconds.

        The client, if it has not gone, is still read: an agent may wait for its answers. After a
        component's failure the turns have failed, too.
        """
        if self.turns is None or ending.reason not in ("client", "stopped"):
            return
        self.turns.cancel_running()
        with trio.move_on_after(min(_CANCEL_TIMEOUT, self.stop_timeout)):
            while self.turns.running() and not self._patient.cancel_called:
                with trio.move_on_after(_CLIENT_CHECK_INTERVAL):
                    await self.client.flusher.wait_room()

    async def run(self, ending: Ending, *, answers: bool) -> None:
        """End the chain; `answers`: whether the client's open requests are answered."""
        self.client.end_detached()
        if self.further is not None:
            self.further.close_inputs(at_once=ending.reason == "stopped")
        with self._patient:
            if ending.reason in ("client", "failed") and answers:
                await self._wait_answered()
            components = list(self.components.running)
            if ending.reason == "failed":
                components.reverse()
            assert self._began is not None
            await end_components(components, self.stop_timeout, self._began, self._give_up)
        await self._wait_killed()
        if self.further is not None:
            await self._wait_further(self.further)
        if answers:
            self.client.answer_open_requests(_errors(ending))
        await self.client.close(0 if self._patient.cancel_called else _FINAL_WRITE_TIMEOUT)

    async def _wait_answered(self) -> None:
        """Wait until the client's open requests are answered, at most `stop_timeout` seconds.

        After a component's failure too: its error is still passed on by the proxies before it.
        """
        with trio.move_on_at(self._deadline()):
            while self.client.connection.unanswered() and not self.client.connection.closed:
                if self.client.transport.peer_closed_read():
                    return
                with trio.move_on_after(_CLIENT_CHECK_INTERVAL):
                    await self.client.flusher.wait_room()

    async def _wait_killed(self) -> None:
        """Kill what still runs, and wait for it."""
        for component in self.components.tasks:
            component.kill()
        seconds = _FORCED_KILL_TIMEOUT if self._patient.cancel_called else _KILL_TIMEOUT
        awaited = [each for each in self.components.tasks if each not in self._given_up]
        for component in await wait_ended(awaited, seconds):
            self._give_up(component)

    async def _wait_further(self, further: SessionChains) -> None:
        """Wait for the further chains, which end at the same time; kill what still runs."""
        with trio.move_on_at(self._deadline() + self.stop_timeout):
            await further.wait_ended()
            return
        further.kill()
        with trio.move_on_after(_KILL_TIMEOUT):
            await further.wait_ended()

    def _give_up(self, component: Component) -> None:
        """Go on without a component that does not end."""
        self._given_up.add(component)
        if component.kind != "plugin":
            log.error("component did not end after SIGKILL", name=component.name)
            return
        assert self._began is not None
        seconds = round(trio.current_time() - self._began, 1)
        place = {"plugin": component.name} | component.busy_handler()
        log.error("plugin did not end, given up", **place, seconds=seconds)

    def _deadline(self) -> float:
        assert self._began is not None
        return self._began + self.stop_timeout


def _errors(ending: Ending) -> FailureErrors:
    """The errors for the client's open requests, after all components have ended."""
    if ending.error is not None:
        ending.error.is_last = True
        return FailureErrors.of(ending.error)
    return CHAIN_ENDED


@asynccontextmanager
async def abandoned_plugins(leave: Callable[[], NoReturn]) -> AsyncIterator[trio.Nursery]:
    """A nursery for `Chain.plugin_nursery`: lets a program exit although a plugin hangs.

    Neither a thread nor a shielded task can be ended from outside, so the program exits without a
    plugin that was given up, once everything else has ended. `leave` ends the process; it is called
    at the end of the block if a plugin still runs.
    """
    async with background_tasks() as nursery:
        yield nursery
        if nursery.child_tasks:
            leave()


async def end_components(
    components: Sequence[Component],
    stop_timeout: float,
    begin: float,
    give_up: Callable[[Component], None],
) -> None:
    """Close the inputs in this order, then terminate and kill what remains.

    A component's input is closed when the one before it has drained, or `stop_timeout / 2` seconds
    after the start. From then on a process has its own `stop_timeout`, at most the one given. A
    plugin has it from `begin` (trio clock); `give_up` is called with one that still runs then.
    """

    async def end(component: Component, done: trio.Event) -> None:
        if component.kind == "plugin":
            if not await _end_plugin(component, stop_timeout, begin):
                give_up(component)
        else:
            await _end_process(component, stop_timeout)
        done.set()

    async with trio.open_nursery() as nursery:

        def close(component: Component) -> trio.Event:
            done = trio.Event()
            component.close_input()
            nursery.start_soon(end, component, done)
            return done

        remaining = iter(components)
        with trio.move_on_after(stop_timeout / 2):
            for component in remaining:
                await _wait_drained(component, close(component))
        for component in remaining:
            close(component)


async def wait_ended(components: Sequence[Component], seconds: float) -> list[Component]:
    """Wait for killed components; return those that still run after `seconds`."""
    running = list(components)

    async def wait(component: Component) -> None:
        await component.wait_ended()
        running.remove(component)

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for component in components:
                nursery.start_soon(wait, component)
    return running


async def _wait_drained(component: Component, done: trio.Event) -> None:
    """Wait until a component has sent its last message, or was given up."""
    async with trio.open_nursery() as nursery:

        async def wait_done() -> None:
            await done.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_done)
        await component.wait_drained()
        nursery.cancel_scope.cancel()


async def _end_process(component: Component, stop_timeout: float) -> None:
    """Wait for the end; SIGTERM after the timeout, SIGKILL after another one."""
    seconds = min(component.stop_timeout, stop_timeout)
    for escalate in (component.terminate, component.kill):
        with trio.move_on_after(seconds):
            await component.wait_drained()
            await component.wait_ended()
            return
        escalate()


async def _end_plugin(component: Component, stop_timeout: float, begin: float) -> bool:
    """Wait for the end; cancel the handlers, then everything. Returns whether it has ended in time,
    counted from `begin`."""
    seconds = min(component.stop_timeout, stop_timeout)
    patience = max(seconds, _MIN_PATIENCE)
    cleanup = min(patience / 4, _MAX_CLEANUP)
    end = max(begin + patience, trio.current_time() + cleanup)
    steps = (
        (min(begin + seconds, end - cleanup), component.terminate),
        (end - cleanup / 2, component.kill),
        (end, lambda: None),
    )
    for deadline, escalate in steps:
        with trio.move_on_at(deadline):
            await component.wait_drained()
            await component.wait_ended()
            return True
        escalate()
    return False
