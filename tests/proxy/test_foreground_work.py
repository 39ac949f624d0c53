"""Which states of version 2 begin or end work."""

from __future__ import annotations

import pytest

from conductor.proxy.foreground_work import ForegroundWork

RUNNING = {"sessionUpdate": "state_update", "state": "running"}
ASKING = {**RUNNING, "state": "requires_action"}
IDLE = {**RUNNING, "state": "idle"}
BUSY_BEHIND = {**IDLE, "stopReason": "end_turn", "background": [{"id": "b"}]}


@pytest.mark.parametrize(
    ("updates", "changes"),
    [
        ([RUNNING, IDLE], ["started", "ended"]),
        ([ASKING, RUNNING, IDLE], ["started", None, "ended"]),
        ([RUNNING, BUSY_BEHIND, BUSY_BEHIND], ["started", "ended", None]),
        ([RUNNING, IDLE, {**IDLE, "background": None}], ["started", "ended", "ended"]),
        ([BUSY_BEHIND, BUSY_BEHIND], ["ended", "ended"]),  # never reports that it runs
        ([{"state": "running"}, {"state": "idle"}], ["started", "ended"]),  # of a subagent
        ([{**RUNNING, "sessionUpdate": "new"}, {**RUNNING, "state": []}, {}], [None, None, None]),
    ],
)
def test_the_states_that_begin_and_end_work(updates, changes):
    work = ForegroundWork()
    assert [work.take(update) for update in updates] == changes
