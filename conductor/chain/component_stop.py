"""Ordered stop of the components of a chain.

Components are stopped one after the other, from the client to the agent or the other way round:
each gets what the one before it still had to send. A process that does not end by itself gets
SIGTERM, then SIGKILL. A plugin is cancelled, and given up `stop_timeout` after the stop began: it
may have a shielded task, wait for a thread, or catch `Cancelled`. The stop goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import trio

from conductor.routing.component import Component

__all__ = ["BusyPlugins", "end_components", "wait_ended"]

_MIN_PATIENCE: Final = 1.0
"""Seconds that a plugin has at least, as in the watchdog: the machine may be busy."""
_MAX_CLEANUP: Final = 1.0


def _cleanup_seconds(patience: float) -> float:
    """The last part of a plugin's time, for its clean-up after the cancellation, in seconds."""
    return min(patience / 4, _MAX_CLEANUP)


class BusyPlugins(msgspec.Struct, eq=False):
    """Handlers that run without waiting for a response, and since when; sampled by `look`.

    Before the components are stopped, open requests are answered. A handler that runs all the time
    has had its `stop_timeout` then.
    """

    _since: dict[object, tuple[Component, float]] = msgspec.field(default_factory=dict)

    def look(self, components: Iterable[Component]) -> None:
        now, before = trio.current_time(), self._since
        self._since = {
            call: (component, before[call][1] if call in before else now)
            for component in components
            for call in component.busy_calls()
        }

    def since(self, component: Component) -> float | None:
        """Since when the longest handler of a plugin has been running, at the last look."""
        times = (time for owner, time in self._since.values() if owner is component)
        return min(times, default=None)

    def cancel_at(self, stop_timeout: float) -> float:
        """Time (trio clock) at which the longest-running handler must be cancelled."""
        return self.first + stop_timeout - _cleanup_seconds(stop_timeout)

    @property
    def first(self) -> float:
        """Start of the longest-running handler (trio clock)."""
        return min((time for _, time in self._since.values()), default=float("inf"))


async def end_components(
    components: Sequence[Component],
    stop_timeout: float,
    begin: float,
    busy: BusyPlugins,
    give_up: Callable[[Component], None],
) -> None:
    """Close the inputs in this order, then terminate and kill what remains.

    A component's input is closed when the one before it has drained, or `stop_timeout / 2` seconds
    after the start. From then on a process has its own `stop_timeout`, at most the one given. A
    plugin has it from `begin` (trio clock), or from the time since which a handler is busy; if a
    handler has had its time already, all plugins have the same deadline. `give_up` is called with a
    plugin that still runs then.
    """
    if busy.cancel_at(stop_timeout) <= trio.current_time():
        begin = busy.first

    async def end(component: Component, done: trio.Event) -> None:
        if component.kind == "plugin":
            since = busy.since(component)
            since = begin if since is None else min(begin, since)
            if not await _end_plugin(component, stop_timeout, since):
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


async def _end_plugin(component: Component, stop_timeout: float, since: float) -> bool:
    """Wait for the end; cancel the handlers, then everything. Returns whether it has ended in time,
    counted from `since`."""
    seconds = min(component.stop_timeout, stop_timeout)
    patience = max(seconds, _MIN_PATIENCE)
    cleanup = _cleanup_seconds(patience)
    end = max(since + patience, trio.current_time() + cleanup)
    steps = (
        (min(since + seconds, end - cleanup), component.terminate),
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
