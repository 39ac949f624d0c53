"""What is read of a message that travels by Streamable HTTP."""

from __future__ import annotations

import pytest

from conductor.remote.message_meta import MessageMeta, SessionTracker, read_meta

NEW = b'{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/"}}'
LOAD = b'{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s1"}}'
ASK = (
    b'{"jsonrpc":"2.0","id":"a","method":"session/request_permission","params":{"sessionId":"s1"}}'
)


@pytest.mark.parametrize(
    ("line", "kind", "session"),
    [
        (LOAD, "request", "s1"),
        (b'{"method":"session/cancel","params":{"sessionId":"s1"}}', "notification", "s1"),
        (b'{"id":1,"result":{"sessionId":"s1"}}', "response", "s1"),
        (b'{"id":1,"error":{"code":1,"message":""}}', "response", None),
        (b'{"method":"x","params":[1]}', "notification", None),
        (b'{"method":"x","params":{"sessionId":7}}', "notification", None),
        (b"[]", "other", None),
        (b'{"method":"\xff"}', "other", None),
        (b"{", "other", None),
    ],
)
def test_a_message_has_a_kind_and_perhaps_a_session(line, kind, session):
    meta = read_meta(line)

    assert (meta.kind, meta.session) == (kind, session)


def test_the_session_of_an_enveloped_message_is_not_that_of_the_envelope():
    inner = b'{"method":"session/prompt","params":{"sessionId":"s1"}}'

    assert read_meta(b'{"id":1,"method":"proxy/successor","params":%s}' % inner).session is None


def test_a_response_goes_once_to_the_session_of_its_request():
    sessions = SessionTracker()
    sessions.record_received(read_meta(ASK))
    answer = read_meta(b'{"jsonrpc":"2.0","id":"a","result":{}}')

    assert [sessions.posts(answer), sessions.posts(answer)] == ["s1", None]


@pytest.mark.parametrize(
    ("asked", "answer", "session"),
    [
        (NEW, b'{"id":2,"result":{"sessionId":"s9"}}', "s9"),
        (NEW, b'{"id":2,"error":{"code":1,"message":""}}', None),
        (LOAD, b'{"id":3,"result":null}', "s1"),
        (ASK, b'{"id":"a","result":{"sessionId":"s9"}}', None),
    ],
)
def test_a_session_exists_once_its_set_up_is_answered(asked, answer, session):
    sessions = SessionTracker()
    sessions.posts(read_meta(asked))

    assert sessions.record_received(read_meta(answer)) == session


CLOSE = b'{"jsonrpc":"2.0","id":4,"method":"session/close","params":{"sessionId":"s1"}}'
PROMPT = b'{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s1"}}'


def answer(id: int, *, failed: bool = False) -> MessageMeta:
    return read_meta(b'{"jsonrpc":"2.0","id":%d,"%s":{}}' % (id, b"error" if failed else b"result"))


def test_a_session_has_ended_when_it_was_closed_and_nothing_asked_about_it_is_open():
    sessions = SessionTracker()
    for line in (PROMPT, CLOSE):
        sessions.posts(read_meta(line))
    ended = [sessions.take_ended()]
    for id in (4, 5):
        sessions.record_received(answer(id))
        ended.append(sessions.take_ended())

    assert ended == [[], [], ["s1"]]
    assert sessions == SessionTracker()


def test_a_session_that_could_not_be_closed_has_not_ended():
    sessions = SessionTracker()
    sessions.posts(read_meta(CLOSE))
    assert sessions.may_end("s1")

    sessions.record_received(answer(4, failed=True))
    assert sessions.take_ended() == []
    assert not sessions.may_end("s1")


def test_a_session_that_is_set_up_again_has_not_ended():
    sessions = SessionTracker()
    for line in (PROMPT, CLOSE):
        sessions.posts(read_meta(line))
    sessions.record_received(answer(4))
    sessions.posts(read_meta(LOAD))
    for id in (3, 5):
        sessions.record_received(answer(id))

    assert sessions.take_ended() == []
