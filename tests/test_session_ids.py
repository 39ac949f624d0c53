"""Which session a message names, for those who route it and for those who check access."""

from __future__ import annotations

import pytest

from conductor.session_ids import UnreadableSession, named_session, session_of

DEEP = b'{"sessionId":"s","a":' + b"[" * 5000 + b"]" * 5000 + b"}"


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
    ],
)
def test_the_session_is_read_whatever_else_is_in_the_params(payload, session):
    assert named_session(payload) == session
    assert session_of(payload) == session


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
def test_what_two_readers_could_read_differently_is_not_read(payload):
    with pytest.raises(UnreadableSession):
        named_session(payload)


@pytest.mark.parametrize("payload", [None, b"{", b'["s"]', rb'{"sessionId":"\ud800"}', DEEP])
def test_routing_takes_what_cannot_be_read_for_no_session(payload):
    assert session_of(payload) is None
