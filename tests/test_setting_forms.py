"""A mode or a model that an agent offers in two forms is one setting."""

from __future__ import annotations

from conductor.setting_forms import current_value, state_after

VALUES = [{"name": "Group", "options": [{"value": "ask"}, {"value": "plan"}]}]
OPTION = {"id": "m", "category": "mode", "currentValue": "ask", "options": VALUES}
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "plan"}]}
STATE = {"sessionId": "s", "modes": MODES, "configOptions": [OPTION]}
PLAN = {
    "sessionId": "s",
    "modes": {**MODES, "currentModeId": "plan"},
    "configOptions": [{**OPTION, "currentValue": "plan"}],
}


def test_either_form_changes_both():
    assert state_after(STATE, "mode", "plan", {}) == PLAN
    options = {"configOptions": PLAN["configOptions"]}
    assert state_after(STATE, "option", "plan", options) == PLAN
    assert current_value("mode", PLAN) == current_value("mode", {"modes": PLAN["modes"]}) == "plan"
    assert STATE["modes"]["currentModeId"] == OPTION["currentValue"] == "ask"


def test_a_value_that_only_one_form_has_leaves_the_other():
    only = {**STATE, "configOptions": [{**OPTION, "options": []}]}
    assert state_after(only, "mode", "plan", {}) == {**only, "modes": PLAN["modes"]}
    assert state_after({}, "mode", "plan", {}) == {}
