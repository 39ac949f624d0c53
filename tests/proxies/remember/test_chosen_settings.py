import pytest

from proxies.remember.chosen_settings import (
    is_current,
    is_offered,
    request_for,
    setting_of,
    with_setting,
)

STATE = {
    "sessionId": "s",
    "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "code"}]},
    "models": {"currentModelId": "s", "availableModels": [{"modelId": "s"}, {"modelId": "l"}]},
    "configOptions": [
        {"id": "fast", "type": "boolean", "currentValue": False},
        {
            "configId": "effort",
            "type": "select",
            "currentValue": "low",
            "options": [{"value": "low"}, {"group": "g", "options": [{"value": "high"}]}, 1],
        },
        "odd",
    ],
}
OFFERED = [
    ("mode", "", "code"),
    ("model", "", "l"),
    ("option", "fast", True),
    ("option", "effort", "high"),
]


@pytest.mark.parametrize("setting", OFFERED)
def test_what_is_offered_is_known_by_the_result_of_the_set_up(setting):
    assert is_offered(setting, STATE)
    assert not is_current(setting, STATE)


@pytest.mark.parametrize(
    "setting",
    [
        ("mode", "", "plan"),
        ("model", "", "xl"),
        ("option", "fast", "high"),
        ("option", "effort", True),
        ("option", "gone", "x"),
    ],
)
@pytest.mark.parametrize("state", [STATE, {}, {"modes": 1, "models": [], "configOptions": {}}])
def test_what_is_not_offered_any_more_is_known(setting, state):
    assert not is_offered(setting, state)
    assert not is_current(setting, state)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("setting", OFFERED)
def test_a_setting_is_that_of_its_request(setting, version):
    assert setting_of(*request_for(setting, "s", version)) == setting


def test_a_text_has_a_type_in_version_2_alone():
    assert request_for(("option", "a", "b"), "s", 2)[1]["type"] == "id"
    assert "type" not in request_for(("option", "a", "b"), "s", 1)[1]


def test_a_malformed_request_has_no_setting():
    assert setting_of("session/set_mode", {"modeId": 1}) is None
    assert setting_of("session/set_config_option", {"value": "x"}) is None


@pytest.mark.parametrize("setting", OFFERED[:2])
def test_mode_and_model_are_those_of_the_setting(setting):
    after = with_setting(STATE, setting, {})
    assert is_current(setting, after)
    assert after["configOptions"] == STATE["configOptions"]


def test_options_are_those_of_the_answer():
    answer = {"configOptions": [{"id": "fast", "currentValue": True}]}
    assert with_setting(STATE, OFFERED[2], answer) == {**STATE, **answer}
    assert with_setting(STATE, OFFERED[2], {}) == STATE
