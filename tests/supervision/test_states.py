"""The state table of a supervised component."""

from __future__ import annotations

import pytest

from conductor.supervision.states import TRANSITIONS, Event, Lifecycle, State


def lifecycle(*events: Event) -> Lifecycle:
    made = Lifecycle()
    for event in events:
        made.on(event, start_at=5.0 if event in (Event.RETRY, Event.RESTART) else None)
    return made


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], State.STARTING),
        ([Event.RETRY, Event.STARTED], State.STARTING),
        ([Event.INITIALIZED], State.RUNNING),
        ([Event.INITIALIZED, Event.RESTART], State.BACKING_OFF),
        ([Event.INITIALIZED, Event.RESTART, Event.RESTART], State.BACKING_OFF),
        ([Event.INITIALIZED, Event.RESTART, Event.STARTED], State.REPLAYING),
        ([Event.INITIALIZED, Event.RESTART, Event.STARTED, Event.RESTART], State.BACKING_OFF),
        ([Event.INITIALIZED, Event.RESTART, Event.STARTED, Event.REPLAYED], State.RUNNING),
        ([Event.INITIALIZED, Event.FAIL], State.FAILED),
        ([Event.STOP, Event.FAIL], State.FAILED),
        ([Event.FAIL, Event.STOP], State.FAILED),
    ],
)
def test_events_lead_to_a_state(events, state):
    assert lifecycle(*events).state is state


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_stopped_failed_and_ended(state):
    assert {Event.STOP, Event.FAIL, Event.ENDED} <= set(TRANSITIONS[state])
    assert TRANSITIONS[state][Event.ENDED] is State.ENDED


def test_a_component_is_not_restarted_before_it_was_initialized():
    with pytest.raises(KeyError):
        lifecycle(Event.RESTART)


def test_the_next_start_is_known_until_it_happens():
    backing_off = lifecycle(Event.INITIALIZED, Event.RESTART)
    assert backing_off.start_at == 5.0

    backing_off.on(Event.STARTED)
    assert backing_off.start_at is None


def test_a_stop_while_backing_off_cancels_the_next_start():
    stopped = lifecycle(Event.INITIALIZED, Event.RESTART, Event.STOP)

    assert (stopped.state, stopped.start_at) == (State.STOPPING, None)


def test_a_component_that_was_initialized_stays_so_after_failures():
    assert not lifecycle(Event.RETRY).was_initialized
    assert lifecycle(Event.INITIALIZED, Event.RESTART, Event.FAIL).was_initialized
