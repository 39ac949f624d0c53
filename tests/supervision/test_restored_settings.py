"""What the client is told if settings of a session could not be restored. Pure."""

import json

from conductor.supervision.restored_settings import real_state_updates

RESUMED = b'{"modes":{"currentModeId":"ask"},"configOptions":[{"id":"model","currentValue":"s"}]}'


def updates(refused, *results):
    found = [json.loads(each) for each in real_state_updates("s1", refused, results)]
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

    (update,) = updates(["session/set_config_option"], RESUMED, later, b"{}")

    assert update["configOptions"] == [{"id": "model", "currentValue": "l"}]


def test_an_agent_that_tells_nothing_gives_no_updates():
    assert updates(["session/set_mode"], b"null", b"{}", b"[1]", b"broken") == []
