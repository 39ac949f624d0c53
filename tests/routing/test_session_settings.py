"""The settings of an agent's sessions for a replay. Pure."""

import json

import pytest
from support.raw_json import dumps

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.limits import Limits
from conductor.routing.session_log import SessionLog
from conductor.routing.session_settings import SettingsLog

MODE, OPTION, MODEL = "session/set_mode", "session/set_config_option", "session/set_model"


class UnusedSource:
    def respond(self, call, result, error):
        raise AssertionError("no response expected")


@pytest.fixture
def settings():
    session_log = SessionLog()
    call = InFlightRequest("session/new", UnusedSource())
    session_log.log_request(call, "session/new", b"{}")
    session_log.log_response(call, b'{"sessionId":"s"}')
    return SettingsLog(session_log)


def request(settings, method, result=b"{}", **params):
    call = InFlightRequest(method, UnusedSource())
    raw = dumps({"sessionId": "s", **params})
    settings.on_request(call, method, raw)
    settings.on_result(call, result)


def update(settings, kind, **members):
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **members}}
    raw = dumps(params)
    settings.on_notification("session/update", raw)


def option(id, value, **more):
    return {"id": id, "currentValue": value, **more}


def kept(settings):
    """The recorded requests, in order: method and params without the session."""
    found = []
    for (method, _), params in settings.session_log.sessions["s"].settings.items():
        decoded = json.loads(params)
        assert decoded.pop("sessionId") == "s"
        found.append((method, decoded))
    return found


def test_the_last_request_of_each_setting_is_kept_in_their_order(settings):
    request(settings, MODE, modeId="plan")
    request(settings, OPTION, configId="effort", value="high")
    request(settings, MODEL, modelId="large")
    request(settings, OPTION, configId="fast", value=True, type="boolean")
    request(settings, MODE, modeId="code")

    assert kept(settings) == [
        (OPTION, {"configId": "effort", "value": "high"}),
        (MODEL, {"modelId": "large"}),
        (OPTION, {"configId": "fast", "value": True, "type": "boolean"}),
        (MODE, {"modeId": "code"}),
    ]


def test_a_request_that_is_refused_or_of_an_unknown_session_is_not_kept(settings):
    request(settings, MODE, result=None, modeId="plan")
    request(settings, MODE, sessionId="other", modeId="plan")
    request(settings, OPTION, configId=["odd"], value="x")
    request(settings, MODE, modeId="x" * 70_000)

    assert kept(settings) == []


def test_a_mode_that_the_agent_selects_replaces_the_one_that_was_set(settings):
    request(settings, MODE, modeId="plan")
    update(settings, "current_mode_update", currentModeId="code")

    assert kept(settings) == [(MODE, {"modeId": "code"})]


def test_updates_in_a_batch_are_seen(settings):
    request(settings, MODE, modeId="plan")
    modes = [
        {"sessionId": "s", "update": {"sessionUpdate": "current_mode_update", "currentModeId": m}}
        for m in ("one", "two")
    ]
    params = [dumps(each) for each in modes]
    settings.on_notifications(NotificationBatch("session/update", params))

    assert kept(settings) == [(MODE, {"modeId": "two"})]


def test_updates_are_not_looked_at_before_the_first_setting(settings):
    assert not settings.wants_notifications
    request(settings, MODE, modeId="plan")
    assert settings.wants_notifications


def test_what_a_restarted_agent_tells_during_its_replay_changes_nothing(settings):
    request(settings, MODE, modeId="plan")
    settings.paused = True
    update(settings, "current_mode_update", currentModeId="ask")
    settings.paused = False

    assert kept(settings) == [(MODE, {"modeId": "plan"})]


def test_options_that_the_agent_changes_or_drops_are_followed(settings):
    request(settings, OPTION, configId="effort", value="high")
    request(settings, OPTION, configId="fast", value=True, type="boolean")
    answer = {"configOptions": [option("effort", "low"), option("model", "l"), option("new", 1)]}
    request(settings, OPTION, dumps(answer), configId="model", value="l")

    assert kept(settings) == [
        (OPTION, {"configId": "model", "value": "l"}),
        (OPTION, {"configId": "effort", "value": "low"}),
    ]


def test_options_of_version_2_have_another_name_of_the_id(settings):
    request(settings, OPTION, configId="mode", value="plan", type="id")
    update(
        settings, "config_option_update", configOptions=[{"configId": "mode", "currentValue": "b"}]
    )

    assert kept(settings) == [(OPTION, {"configId": "mode", "value": "b", "type": "id"})]


def test_a_mode_replaces_the_option_of_that_category_that_was_set_before(settings):
    opened = {"sessionId": "s", "configOptions": [option("m", "ask", category="mode")]}
    settings.session_log.sessions["s"].result = dumps(opened)
    request(settings, OPTION, configId="m", value="yolo")
    request(settings, OPTION, configId="effort", value="high")
    request(settings, MODE, modeId="plan")

    assert kept(settings) == [
        (OPTION, {"configId": "effort", "value": "high"}),
        (MODE, {"modeId": "plan"}),
    ]


def test_an_option_of_the_category_mode_replaces_a_mode_that_was_set(settings):
    request(settings, MODE, modeId="plan")
    same = option("agent-mode", "plan", category="mode")
    update(settings, "config_option_update", configOptions=[same])
    assert kept(settings) == [(MODE, {"modeId": "plan"})]

    update(settings, "config_option_update", configOptions=[same | {"currentValue": "code"}])

    assert kept(settings) == [(OPTION, {"value": "code", "configId": "agent-mode"})]


@pytest.mark.parametrize("params", [b"[]", b'{"update":1}', b'"current_mode_update"', b"{"])
def test_malformed_updates_are_ignored(settings, params):
    request(settings, MODE, modeId="plan")
    settings.on_notification("session/update", params + b' "current_mode_update"')
    settings.on_notification("session/update", params)
    update(settings, "current_mode_update", currentModeId=7)
    update(settings, "config_option_update", configOptions=[1, {"id": 2}, {}])

    assert kept(settings) == [(MODE, {"modeId": "plan"})]


def test_settings_count_as_payloads_of_their_session(settings):
    session_log = settings.session_log
    before = session_log.size
    request(settings, MODE, modeId="plan")
    assert session_log.size > before
    request(settings, MODE, modeId="plan")
    session_log.forget("s")
    assert session_log.size == 0

    session_log.limits = Limits(max_session_log_bytes=60)
    call = InFlightRequest("session/new", UnusedSource())
    session_log.log_request(call, "session/new", b"{}")
    session_log.log_response(call, b'{"sessionId":"s"}')
    request(settings, OPTION, configId="x", value="y" * 50)
    assert not session_log.sessions["s"].has_payloads
    assert (kept(settings), session_log.size) == ([], 0)
