"""The settings of an agent's sessions for a replay. Pure."""

import json

import pytest
from support.peers.port import Flusher, ListTransport, Neighbour
from support.raw_json import dumps

from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.limits import Limits
from conductor.routing.link import Link
from conductor.routing.port import connect_ports
from conductor.routing.session_settings import SettingsLog

MODE, OPTION, MODEL = "session/set_mode", "session/set_config_option", "session/set_model"


class Agent:
    """An agent behind a link that keeps its settings; the test plays the agent and the client."""

    def __init__(self):
        self.link = Link("agent", "agent", lambda *report: None)
        self.session_log = self.link.session_log
        self.settings = SettingsLog(self.session_log)
        self.link.plain.insert(self.settings)
        self.client = Neighbour()
        connect_ports(self.client, self.link.plain)
        self.link.connect(Connection(ListTransport(), self.link, Flusher()))

    def request(self, method, params, result):
        call = InFlightRequest(method, self.client)
        self.link.plain.request(call, method, dumps(params))
        answer = b'"error":{"code":1,"message":""}' if result is None else b'"result":' + result
        self.feed(b'{"jsonrpc":"2.0","id":%d,%b}' % (call.target_id, answer))

    def feed(self, *lines):
        self.link.connection.feed(b"".join(line + b"\n" for line in lines))


@pytest.fixture
def settings():
    agent = Agent()
    agent.request("session/new", {}, b'{"sessionId":"s"}')
    return agent


def request(agent, method, result=b"{}", **params):
    agent.request(method, {"sessionId": "s", **params}, result)


def update(agent, kind, **members):
    agent.feed(as_update(dumps({"sessionId": "s", "update": {"sessionUpdate": kind, **members}})))


def as_update(params):
    return b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % params


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


def test_updates_in_a_batch_are_seen(settings):
    request(settings, MODE, modeId="plan")
    modes = [
        {"sessionId": "s", "update": {"sessionUpdate": "current_mode_update", "currentModeId": m}}
        for m in ("one", "two")
    ]
    settings.feed(*(as_update(dumps(each)) for each in modes))

    assert kept(settings) == [(MODE, {"modeId": "two"})]


def test_what_the_agent_sets_before_any_request_is_not_kept(settings):
    update(settings, "current_mode_update", currentModeId="code")

    assert kept(settings) == []


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
    settings.feed(as_update(params + b' "current_mode_update"'), as_update(params))
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
    settings.request("session/new", {}, b'{"sessionId":"s"}')
    request(settings, OPTION, configId="x", value="y" * 50)
    assert not session_log.sessions["s"].has_payloads
    assert (kept(settings), session_log.size) == ([], 0)
