"""The session id of a message, for routing and for access checks."""

from __future__ import annotations

import pytest
from support import raw_json

from conductor.acp import (
    NOTIFICATIONS,
    REQUESTS,
    announced_subagent,
    session_id_of,
)
from conductor.schema.methods import V1, V2


def test_notifications_and_requests_are_those_of_the_schema():
    methods = [*V1.values(), *V2.values()]
    assert {each.name for each in methods if each.kind == "notification"} == NOTIFICATIONS
    assert {each.name for each in methods if each.kind == "request"} == REQUESTS


DEEP = b'{"sessionId":"s","a":%b}' % raw_json.nested(raw_json.TOO_DEEP)


@pytest.mark.parametrize(
    ("payload", "session"),
    [
        (None, None),
        (b"{}", None),
        (b'{"sessionId":null}', None),
        (b'{"sessionId":"s"}', "s"),
        (b' { "cwd" : "/" , "sessionId" : "s" } ', "s"),
        (rb'{"session\u0049d":"s"}', "s"),
        (rb'{"sessionId":"\u0073"}', "s"),
        (rb'{"sessionId":"s","_meta":{"x":"\ud83d"}}', "s"),
        (rb'{"_meta":{"\udc00":1,"sessionId":"other"},"sessionId":"s"}', "s"),
        (rb'{"_meta":{"x":"\ud83d"}}', None),
        (b'{"_meta":{"sessionId":"other"},"sessionId":"s"}', "s"),
        (b'{"big":1e999,"sessionId":"s"}', "s"),
        ('{"sessionId":"ü"}'.encode(), "ü"),
        (memoryview(b'{"sessionId":"s"}'), "s"),
        (rb'{"sessionId":"\ud83d\ude00","_meta":"\ud83d"}', "😀"),
        (rb'{"sessionId":"s","_meta":{"session_id":"t","sessionId":"u","x":"\u00e4"}}', "s"),
        (b'{"sessionId":"s","prompt":"\\"session_id\\":1, \\"SESSIONID\\":2"}', "s"),
        (b'{"sessionId":"s","prompt":"%b"}' % (b"session " * 2000), "s"),
    ],
)
def test_the_session_is_read_beside_any_other_params(payload, session):
    assert session_id_of(payload) == session


@pytest.mark.parametrize("payload", [None, b"{", b'["s"]', rb'{"sessionId":"\ud800"}', DEEP])
def test_unreadable_params_have_no_session_for_routing(payload):
    assert session_id_of(payload) is None


def test_an_announced_subagent_is_read_with_its_parent():
    update = b'{"sessionUpdate":"subagent_update","sessionId":"c","title":"x"}'
    assert announced_subagent(b'{"sessionId":"p","update":%b}' % update) == ("p", "c")
    assert announced_subagent(b'{"update":%b,"_meta":{},"sessionId":"p"}' % update) == ("p", "c")


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"null",
        b'{"sessionId":"p","update":{"sessionUpdate":"subagent_update"}}',
        b'{"sessionId":"p","update":{"sessionUpdate":"notice","title":"subagent_update"}}',
        b'{"sessionId":"p","update":{"sessionUpdate":"subagent_update","sessionId":1}}',
        b'["subagent_update"]',
        b'{"subagent_update":',
    ],
)
def test_no_other_params_announce_a_subagent(params):
    assert announced_subagent(params) is None
