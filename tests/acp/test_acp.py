"""The session id of a message, for routing and for access checks."""

from __future__ import annotations

import tracemalloc

import pytest
from support import raw_json

from conductor.acp import (
    NOTIFICATIONS,
    REQUESTS,
    AmbiguousSessionId,
    announced_subagent,
    session_id_of,
    unambiguous_session_id,
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
    assert unambiguous_session_id(payload) == session
    assert session_id_of(payload) == session


@pytest.mark.parametrize(
    "name",
    [
        b"session_id",  # read by the Python SDK
        b"sessionid",  # read by encoding/json of Go, which ignores the case
        b"SESSIONID",
        "\u017fe\u017f\u017fionId".encode(),
        rb"\u017Fe\u017f\u0053ionId",
        rb"session\u005Fid",
        rb"sessi\u006F\u006eId",
    ],
)
def test_each_spelling_that_an_agent_takes_for_the_name_is_read(name):
    assert unambiguous_session_id(b'{"%b" : "s"}' % name) == "s"
    assert unambiguous_session_id(rb'{"_meta":"\udc00","%b":"s"}' % name) == "s"
    for both in (b'{"sessionId":"t","%b":"s"}', b'{"%b":"s","sessionId":null}'):
        with pytest.raises(AmbiguousSessionId):
            unambiguous_session_id(both % name)


@pytest.mark.parametrize("escape", [b"\\u0041", b"\\ud800", b"\\ue000\\ud800"])
def test_other_params_are_not_decoded(escape):
    """Objects of the standard library took 56 times the memory, and held all clients up."""
    payload = b'{"a":[%b1],"b":"%b","sessionId":"s"}' % (b"[]," * 300_000, escape)

    tracemalloc.start()
    try:
        assert unambiguous_session_id(payload) == "s"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 6 * len(payload)


def test_names_without_end_are_refused():
    with pytest.raises(AmbiguousSessionId):
        unambiguous_session_id(b"{%b}" % b",".join([b'"sessionId":"s"'] * 100_000))


@pytest.mark.parametrize(
    "payload",
    [
        b'{"sessionId":1}',
        b'{"sessionId":["s"]}',
        b'{"sessionId":"s","sessionId":"t"}',
        b'{"sessionId":"t","sessionId":"s"}',
        rb'{"sessionId":"s","session\u0049d":"t"}',
        b'{"sessionId":"s","sessionId":null}',
        rb'{"sessionId":"s\ud800"}',
        rb'{"sessionId":"s","sessionId":"t","_meta":"\ud800"}',
        b'["s"]',
        b'"s"',
        b"null",
        b"{",
        b'{"sessionId":"s"} x',
        b'{"sessionId":"\xff"}',
        DEEP,
    ],
)
def test_ambiguous_params_have_no_session_id(payload):
    with pytest.raises(AmbiguousSessionId):
        unambiguous_session_id(payload)


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
