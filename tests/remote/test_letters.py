"""What is read of a message that travels by Streamable HTTP."""

from __future__ import annotations

import pytest

from conductor.remote.letters import Letter, Sessions, body_with_connection, read_letter

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
    letter = read_letter(line)

    assert (letter.kind, letter.session) == (kind, session)


@pytest.mark.parametrize("method", ["initialize", "proxy/initialize", "_proxy/initialize"])
def test_every_role_has_a_request_that_opens_the_connection(method):
    assert read_letter(b'{"id":0,"method":"%s"}' % method.encode()).initializes
    assert not read_letter(b'{"method":"%s"}' % method.encode()).initializes


def test_the_session_of_an_enveloped_message_is_not_that_of_the_envelope():
    inner = b'{"method":"session/prompt","params":{"sessionId":"s1"}}'

    assert read_letter(b'{"id":1,"method":"proxy/successor","params":%s}' % inner).session is None


def test_an_answer_goes_to_the_session_whose_request_it_answers_and_only_once():
    sessions = Sessions()
    sessions.arrives(read_letter(ASK))
    answer = read_letter(b'{"jsonrpc":"2.0","id":"a","result":{}}')

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
    sessions = Sessions()
    sessions.posts(read_letter(asked))

    assert sessions.arrives(read_letter(answer)) == session


def test_a_session_that_was_closed_has_ended_until_it_is_set_up_again():
    sessions = Sessions()
    sessions.posts(Letter(b"", "request", b"4", "session/close", "s1"))
    assert sessions.ended == {"s1"}

    sessions.posts(read_letter(LOAD))
    assert sessions.ended == set()


def test_the_id_of_a_connection_may_stand_in_the_answer():
    assert body_with_connection(b'{"id":1,"result":{"connectionId":"c1"}}') == "c1"
    assert body_with_connection(b'{"id":1,"error":{"code":1,"message":""}}') is None
    assert body_with_connection(b"<html>") is None
