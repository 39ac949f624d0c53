"""The log of handshake and session set-ups for a replay. Pure."""

import pytest

from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.limits import Limits
from conductor.routing.session_log import SessionLog


class UnusedSource:
    def respond(self, call, result, error):
        raise AssertionError("no response expected")


def ask(session_log, method, params=b"{}"):
    call = InFlightRequest(method, UnusedSource())
    session_log.log_request(call, method, params)
    return call


def pass_on(session_log, method, result):
    session_log.log_successor_response(InFlightRequest(method, UnusedSource()), result)


def refusal(session_log, method, params=b"{}"):
    with pytest.raises(RequestError) as raised:
        ask(session_log, method, params)
    return raised.value


def summary(session_log):
    return {
        name: (each.method, each.params, each.result, each.successor_result)
        for name, each in session_log.sessions.items()
    }


@pytest.mark.parametrize("method", ["session/new", "session/fork"])
def test_a_session_is_kept_under_the_id_that_it_was_given(method):
    kept = SessionLog()
    call = ask(kept, method, b'{"sessionId":"parent"}')
    pass_on(kept, method, b'{"sessionId":"inner"}')

    kept.log_response(call, b'{"sessionId":"s"}')

    assert summary(kept) == {
        "s": (method, b'{"sessionId":"parent"}', b'{"sessionId":"s"}', b'{"sessionId":"inner"}')
    }


@pytest.mark.parametrize("result", [b"{}", b'{"sessionId":"of another chain"}'])
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_session_that_was_asked_for_by_name_is_kept_under_it(method, result):
    kept = SessionLog()

    kept.log_response(ask(kept, method, b'{"sessionId":"s"}'), result)

    assert list(kept.sessions) == ["s"]


def test_sessions_that_are_set_up_at_the_same_time_keep_their_own_answers():
    """The successor may answer the second first."""
    kept = SessionLog()
    first, second = ask(kept, "session/new", b'{"n":1}'), ask(kept, "session/new", b'{"n":2}')
    pass_on(kept, "session/new", b'{"sessionId":"b"}')
    pass_on(kept, "session/new", b'{"sessionId":"a"}')

    kept.log_response(first, b'{"sessionId":"a"}')
    kept.log_response(second, b'{"sessionId":"b"}')

    assert [each.successor_result for each in kept.sessions.values()] == [
        b'{"sessionId":"a"}',
        b'{"sessionId":"b"}',
    ]
    assert [each.params for each in kept.sessions.values()] == [b'{"n":1}', b'{"n":2}']


def test_a_proxy_may_resume_what_it_is_asked_to_load():
    kept = SessionLog()
    call = ask(kept, "session/load", b'{"sessionId":"s"}')
    pass_on(kept, "session/resume", b'{"configOptions":[]}')

    kept.log_response(call, b'{"modes":null}')

    assert kept.sessions["s"].successor_result == b'{"configOptions":[]}'


def test_refused_session_set_ups_are_not_recorded():
    kept = SessionLog()
    kept.log_response(ask(kept, "session/new"), b'{"sessionId":"s"}')

    kept.log_response(ask(kept, "session/new"), None)
    kept.log_response(ask(kept, "session/close", b'{"sessionId":"s"}'), None)

    assert list(kept.sessions) == ["s"]


def test_an_answer_of_the_successor_is_not_left_for_the_next_session():
    kept = SessionLog()
    refused = ask(kept, "session/new")
    pass_on(kept, "session/new", b'{"sessionId":"never"}')
    kept.log_response(refused, None)

    kept.log_response(ask(kept, "session/new"), b'{"sessionId":"s"}')

    assert kept.sessions["s"].successor_result == b""


def test_initialize_stays_in_flight_when_the_process_ends():
    """It may be asked again in the other dialect, in a fresh process."""
    kept = SessionLog()
    initialize, session = ask(kept, "initialize"), ask(kept, "session/new")

    kept.drop_unanswered()
    kept.log_response(session, b'{"sessionId":"s"}')
    kept.log_response(initialize, b"{}")

    assert kept.sessions == {}
    assert kept.initialize is not None


def test_a_set_up_over_the_limit_passes_and_is_not_kept():
    kept = SessionLog(Limits(max_session_log_bytes=1000))
    kept.log_response(ask(kept, "session/new"), b'{"sessionId":"small"}')

    large = ask(kept, "session/new", b'{"_meta":"%b"}' % (b"x" * 1000))
    kept.log_response(large, b'{"sessionId":"large"}')

    assert not kept.sessions["large"].has_payloads
    assert kept.size == kept.sessions["small"].size


@pytest.mark.parametrize("end", ["session/close", "session/delete"])
def test_closed_sessions_do_not_count_towards_the_size(end):
    kept = SessionLog()
    for _ in range(3):
        kept.log_response(ask(kept, "session/new"), b'{"sessionId":"s"}')
        ask(kept, "session/new")
    refused = ask(kept, "session/new")
    kept.log_response(refused, None)
    kept.drop_unanswered()

    kept.log_response(ask(kept, end, b'{"sessionId":"s"}'), b"{}")

    assert (kept.size, kept.sessions, kept._counted, kept._unanswered) == (0, {}, {}, {})


def test_an_initialize_over_the_limit_is_refused():
    kept = SessionLog(Limits(max_session_log_bytes=10))

    assert "max_session_log_bytes" in refusal(kept, "initialize", b'{"_meta":"xxxxxxxx"}').data


def test_recorded_successor_results_are_bounded():
    kept = SessionLog()
    ask(kept, "session/new")

    for number in range(100):
        pass_on(kept, "session/new", b'{"sessionId":"%d"}' % number)

    assert kept._successor_results == [("session/new", b'{"sessionId":"99"}')]


def test_a_login_that_is_too_large_to_keep_replaces_the_one_before():
    session_log = SessionLog()
    session_log.log_response(ask(session_log, "authenticate", b'{"methodId":"key"}'), b"{}")
    assert session_log.login is not None
    assert session_log.login.params == b'{"methodId":"key"}'

    large = b'{"methodId":"' + b"x" * 65536 + b'"}'
    failed = ask(session_log, "authenticate", large)
    session_log.log_response(failed, None)
    assert session_log.login.has_payloads

    session_log.log_response(ask(session_log, "authenticate", large), b"{}")
    assert not session_log.login.has_payloads
    assert session_log.size == 0
