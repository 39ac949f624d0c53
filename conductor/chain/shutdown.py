"""Ordered stop of the components of a chain.

Components are stopped from the client to the agent: each gets what its predecessor still had to
send. A component that does not end by itself gets SIGTERM, then SIGKILL.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from conductor.routing.component import Component

__all__ = ["end_components", "wait_ended"]


async def end_components(components: Sequence[Component], stop_timeout: float) -> None:
    """Close the inputs from the client to the agent, then terminate and kill what remains.

    A component's input is closed when its predecessor has drained, or `stop_timeout / 2` seconds
    after the start. From then on the component has its own `stop_timeout`, at most the one given.
    """
    async with trio.open_nursery() as nursery:
        remaining = iter(components)
        with trio.move_on_after(stop_timeout / 2):
            for component in remaining:
                component.close_input()
                nursery.start_soon(_end_component, component, stop_timeout)
                await component.wait_drained()
        for component in remaining:
            component.close_input()
            nursery.start_soon(_end_component, component, stop_timeout)


async def wait_ended(components: Sequence[Component], seconds: float) -> list[str]:
    """Wait for killed components; return the names of those that still run after `seconds`.

    Only plugins can still run: a shielded task, a thread, a `Cancelled` that is caught.
    """
    running = list(components)

    async def wait(component: Component) -> None:
        await component.wait_ended()
        running.remove(component)

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for component in components:
                nursery.start_soon(wait, component)
    return [component.name for component in running]


async def _end_component(component: Component, stop_timeout: float) -> None:
    """Wait for the end; SIGTERM after the timeout, SIGKILL after another one."""
    seconds = min(component.stop_timeout, stop_timeout)
    for escalate in (component.terminate, component.kill):
        with trio.move_on_after(seconds):
            await component.wait_drained()
            await component.wait_ended()
            return
        escalate()
