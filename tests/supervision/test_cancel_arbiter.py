"""Which watcher ends a cancelled turn or request."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import pytest

from conductor.supervision.cancel_arbiter import CancelArbiter

TURN: tuple[Literal["turn", "request"], str] = ("turn", "s1")
SLOW: tuple[Literal["turn", "request"], str] = ("request", "_x/slow")


@attrs.define(eq=False)
class Component:
    """What the arbiter asks a component for."""

    blocks: bool
    enforces_cancel_timeout: bool = True

    def blocks_turn(self, session: str) -> bool:
        return self.blocks

    def blocks_request(self, method: str | None) -> bool:
        return self.blocks


def plugin(*, blocks: bool) -> Component:
    return Component(blocks, enforces_cancel_timeout=False)


def acting(arbiter: CancelArbiter, components: Any, cancelled=TURN, now=0.0) -> list[Any]:
    """The watchers that are to act, of all that wake at this time, the client's link first."""
    watchers = [None, *(each for each in components if each.enforces_cancel_timeout)]
    return [each for each in watchers if arbiter.find(components, each, cancelled, now)[1]]


def test_the_blocking_component_nearest_to_the_agent_ends_the_turn_itself():
    proxy, agent = Component(blocks=True), Component(blocks=True)

    assert acting(CancelArbiter(), [proxy, agent]) == [agent]


def test_before_a_plugin_the_last_watcher_acts_that_waits():
    waiting, passed, blocking = Component(True), Component(False), plugin(blocks=True)
    agent = Component(blocks=False)

    assert acting(CancelArbiter(), [waiting, passed, blocking, agent]) == [waiting]
    assert acting(CancelArbiter(), [passed, blocking, agent]) == [None]


def test_if_no_component_blocks_the_clients_link_acts():
    assert acting(CancelArbiter(), [Component(blocks=False)]) == [None]


@pytest.mark.parametrize("cancelled", [TURN, SLOW])
def test_for_half_of_the_timeout_no_other_watcher_acts(cancelled):
    arbiter, proxy, agent = CancelArbiter(), Component(blocks=True), Component(blocks=True)
    arbiter.timeout = 10.0
    assert acting(arbiter, [proxy, agent], cancelled) == [agent]

    agent.blocks = False  # the proxy has not forwarded the response yet
    assert acting(arbiter, [proxy, agent], cancelled, now=4.9) == []
    assert acting(arbiter, [proxy, agent], cancelled, now=5.0) == [proxy]


def test_all_requests_of_a_method_are_ended_at_once_by_the_watcher_that_acts():
    arbiter, blocking = CancelArbiter(), plugin(blocks=True)

    assert [arbiter.find([blocking], None, SLOW, 0.0)[1] for _ in range(4)] == [True] * 4
