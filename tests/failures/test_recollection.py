"""What a restarted component is told again, and what is answered in its successor's place. Pure."""

import pytest

from conductor.connection.calls import Call
from conductor.errors import RequestError
from conductor.limits import Limits
from conductor.routing.recollection import Recollection
from conductor.session_ids import session_of


class Nobody:
    def respond(self, call, result, error):
        raise AssertionError("nobody asked")


def ask(recollection, method, params=b"{}"):
    call = Call(method, Nobody())
    recollection.asked(call, method, params)
    return call


def pass_on(recollection, method, result):
    recollection.inner_answered(Call(method, Nobody()), result)


def refusal(recollection, method, params=b"{}"):
    with pytest.raises(RequestError) as raised:
        ask(recollection, method, params)
    return raised.value


def summary(recollection):
    return {
        name: (each.method, each.params, each.result, each.inner_result)
        for name, each in recollection.sessions.items()
    }


def test_the_handshake_is_kept_with_both_answers():
    kept = Recollection()
    call = ask(kept, "initialize", b'{"protocolVersion":1}')
    pass_on(kept, "initialize", b'{"inner":1}')

    kept.answered(call, b'{"outer":1}')

    assert kept.initialize.params == b'{"protocolVersion":1}'
    assert kept.initialize.result == b'{"outer":1}'
    assert kept.initialize.inner_result == b'{"inner":1}'


@pytest.mark.parametrize("method", ["session/new", "session/fork"])
def test_a_session_is_kept_under_the_id_that_it_was_given(method):
    kept = Recollection()
    call = ask(kept, method, b'{"sessionId":"parent"}')
    pass_on(kept, method, b'{"sessionId":"inner"}')

    kept.answered(call, b'{"sessionId":"s"}')

    assert summary(kept) == {
        "s": (method, b'{"sessionId":"parent"}', b'{"sessionId":"s"}', b'{"sessionId":"inner"}')
    }


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_session_that_was_asked_for_by_name_is_kept_under_it(method):
    kept = Recollection()

    kept.answered(ask(kept, method, b'{"sessionId":"s"}'), b"{}")

    assert list(kept.sessions) == ["s"]


def test_sessions_that_are_set_up_at_the_same_time_keep_their_own_answers():
    """The successor may answer the second first."""
    kept = Recollection()
    first, second = ask(kept, "session/new", b'{"n":1}'), ask(kept, "session/new", b'{"n":2}')
    pass_on(kept, "session/new", b'{"sessionId":"b"}')
    pass_on(kept, "session/new", b'{"sessionId":"a"}')

    kept.answered(first, b'{"sessionId":"a"}')
    kept.answered(second, b'{"sessionId":"b"}')

    assert [each.inner_result for each in kept.sessions.values()] == [
        b'{"sessionId":"a"}',
        b'{"sessionId":"b"}',
    ]
    assert [each.params for each in kept.sessions.values()] == [b'{"n":1}', b'{"n":2}']


def test_a_proxy_may_rename_sessions():
    kept = Recollection()
    call = ask(kept, "session/new")
    pass_on(kept, "session/new", b'{"sessionId":"of-the-agent"}')

    kept.answered(call, b'{"sessionId":"of-the-proxy"}')

    assert kept.sessions["of-the-proxy"].inner_result == b'{"sessionId":"of-the-agent"}'


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_a_session_that_ended_is_forgotten(method):
    kept = Recollection()
    kept.answered(ask(kept, "session/new"), b'{"sessionId":"s"}')

    kept.answered(ask(kept, method, b'{"sessionId":"s"}'), b"{}")

    assert kept.sessions == {}


def test_what_was_refused_is_not_kept():
    kept = Recollection()
    kept.answered(ask(kept, "session/new"), b'{"sessionId":"s"}')

    kept.answered(ask(kept, "session/new"), None)
    kept.answered(ask(kept, "session/close", b'{"sessionId":"s"}'), None)

    assert list(kept.sessions) == ["s"]


def test_an_answer_of_the_successor_is_not_left_for_the_next_session():
    kept = Recollection()
    refused = ask(kept, "session/new")
    pass_on(kept, "session/new", b'{"sessionId":"never"}')
    kept.answered(refused, None)

    kept.answered(ask(kept, "session/new"), b'{"sessionId":"s"}')

    assert kept.sessions["s"].inner_result == b""


def test_answers_that_nobody_asked_for_are_no_business_of_ours():
    kept = Recollection()
    pass_on(kept, "session/new", b'{"sessionId":"of-its-own"}')

    kept.answered(Call("session/new", Nobody()), b'{"sessionId":"x"}')

    assert (kept.sessions, kept._inner) == ({}, [])


def test_the_process_that_was_asked_is_gone_but_its_initialization_goes_on():
    """It may be asked again in the other dialect, in a fresh process."""
    kept = Recollection()
    initialize, session = ask(kept, "initialize"), ask(kept, "session/new")

    kept.forget_open()
    kept.answered(session, b'{"sessionId":"s"}')
    kept.answered(initialize, b"{}")

    assert kept.sessions == {}
    assert kept.initialize is not None


def test_the_set_ups_of_the_oldest_sessions_are_dropped_beyond_the_limit():
    kept = Recollection(Limits(max_session_log_bytes=1000))
    for name in ("a", "b", "c"):
        params = b'{"cwd":"%b"}' % (b"/" * 400)
        kept.answered(ask(kept, "session/new", params), b'{"sessionId":"%b"}' % name.encode())

    assert {name: each.is_kept for name, each in kept.sessions.items()} == {
        "a": False,
        "b": True,
        "c": True,
    }
    assert kept.size == sum(each.size for each in kept.sessions.values()) <= 1000


def test_a_set_up_over_the_limit_passes_and_is_not_kept():
    kept = Recollection(Limits(max_session_log_bytes=1000))
    kept.answered(ask(kept, "session/new"), b'{"sessionId":"small"}')

    large = ask(kept, "session/new", b'{"_meta":"%b"}' % (b"x" * 1000))
    kept.answered(large, b'{"sessionId":"large"}')

    assert not kept.sessions["large"].is_kept
    assert kept.size == kept.sessions["small"].size


@pytest.mark.parametrize("end", ["session/close", "session/delete"])
def test_what_is_over_counts_no_more(end):
    kept = Recollection()
    for _ in range(3):
        kept.answered(ask(kept, "session/new"), b'{"sessionId":"s"}')
        ask(kept, "session/new")
    refused = ask(kept, "session/new")
    kept.answered(refused, None)
    kept.forget_open()

    kept.answered(ask(kept, end, b'{"sessionId":"s"}'), b"{}")

    assert (kept.size, kept.sessions, kept._kept, kept._open) == (0, {}, {}, {})


def test_one_session_more_than_the_limit_is_refused():
    kept = Recollection(Limits(max_sessions=2))
    kept.answered(ask(kept, "session/new"), b'{"sessionId":"s"}')
    ask(kept, "session/load", b'{"sessionId":"t"}')

    assert "more than 2 sessions (max_sessions)" in refusal(kept, "session/new").data
    ask(kept, "session/close", b'{"sessionId":"s"}')


def test_an_initialize_over_the_limit_is_refused():
    kept = Recollection(Limits(max_session_log_bytes=10))

    assert "max_session_log_bytes" in refusal(kept, "initialize", b'{"_meta":"xxxxxxxx"}').data


def test_a_proxy_that_asks_more_than_it_is_asked_fills_no_memory():
    kept = Recollection()
    ask(kept, "session/new")

    for number in range(100):
        pass_on(kept, "session/new", b'{"sessionId":"%d"}' % number)

    assert kept._inner == [("session/new", b'{"sessionId":"99"}')]


@pytest.mark.parametrize(
    "payload", [None, b"{}", b"[]", b'{"sessionId":1}', b'"\\ud800"', b'{"a":' * 5000]
)
def test_params_without_a_session_have_none(payload):
    assert session_of(payload) is None
