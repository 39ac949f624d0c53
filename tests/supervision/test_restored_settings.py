"""What the client is told if settings of a session could not be restored. Pure."""

import json

from conductor.supervision.replay import real_state_updates

OPTION = "session/set_config_option"
RESUMED = b'{"modes":{"currentModeId":"ask"},"configOptions":[{"id":"model","currentValue":"s"}]}'


def updates(refused, result, *accepted):
    found = [json.loads(each) for each in real_state_updates("s1", refused, result, accepted)]
    assert all(each["sessionId"] == "s1" for each in found)
    return [each["update"] for each in found]


def test_nothing_is_told_if_everything_was_restored():
    assert updates([], RESUMED) == []


def test_a_refused_mode_is_told_with_the_options():
    assert updates(["session/set_mode"], RESUMED) == [
        {"sessionUpdate": "current_mode_update", "currentModeId": "ask"},
        {
            "sessionUpdate": "config_option_update",
            "configOptions": [{"id": "model", "currentValue": "s"}],
        },
    ]


def test_the_options_of_the_last_answer_count():
    later = b'{"configOptions":[{"id":"model","currentValue":"l"}]}'

    first, second = (OPTION, b'{"value":"l"}', later), (OPTION, b'{"value":1}', b"{}")
    (update,) = updates(["session/set_config_option"], RESUMED, first, second)

    assert update["configOptions"] == [{"id": "model", "currentValue": "l"}]


def test_a_mode_that_was_restored_is_told_in_both_of_its_forms():
    values = [{"value": each} for each in ("ask", "plan")]
    mode = {"id": "m", "category": "mode", "currentValue": "ask", "options": values}
    listed = [{"id": "ask"}, {"id": "plan"}]
    modes = {"currentModeId": "ask", "availableModes": listed}
    resumed = json.dumps({"modes": modes, "configOptions": [mode]}).encode()

    (update,) = updates([OPTION], resumed, ("session/set_mode", b'{"modeId":"plan"}', b"{}"))

    assert update["configOptions"] == [{**mode, "currentValue": "plan"}]


def test_an_agent_that_tells_nothing_gives_no_updates():
    assert updates(["session/set_mode"], b"null", (OPTION, b"[1]", b"broken")) == []
