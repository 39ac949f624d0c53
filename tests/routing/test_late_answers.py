"""What the log says of an answer that comes after another was given in its place."""

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.routing.late_answers import LateAnswers


def request(id, **members):
    return InFlightRequest("session/load", None, target_id=id, **members)


def test_a_late_answer_names_its_request_and_the_times():
    late = LateAnswers()
    late.expect(request(3), 100.0, 30.0)
    late.expect(request(4, session="one"), 101.0, None)

    assert late.take(3, 112.34) == (
        "the request was sent 42.3 s ago, and answered in its place 12.3 s ago",
        {"method": "session/load"},
    )
    assert late.take(4, 103.0) == (
        "the request was answered in its place 2.0 s ago",
        {"method": "session/load", "session": "one"},
    )


def test_only_one_answer_to_a_request_is_late():
    late = LateAnswers()
    late.expect(request(3), 0.0, None)

    assert late.take(3, 1.0) is not None
    assert late.take(3, 1.0) is None
    assert late.take("3", 1.0) is None


def test_requests_that_are_never_answered_do_not_accumulate():
    late = LateAnswers()
    for id in range(1, 1001):
        late.expect(request(id), 0.0, None)

    assert late.take(1, 1.0) is None
    assert late.take(1000, 1.0) is not None
    assert len(late._expected) == 199
