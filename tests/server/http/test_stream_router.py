"""Selection of the event stream for each message."""

from __future__ import annotations

from typing import Any

import pytest
from support.raw_json import compact, dumps
from support.server_clients import request

from conductor.server.access import Refusal
from conductor.server.http.parse_request import PostedMessage, parse_post
from conductor.server.http.stream_router import Route, StreamRouter


def post(message: dict[str, Any], session: str | None = None) -> PostedMessage:
    headers = {} if session is None else {"acp-session-id": session}
    posted = parse_post(headers, dumps(message))
    assert not isinstance(posted, Refusal)
    return posted


def route(router: StreamRouter, **message: Any) -> str | None:
    return router.route(dumps({"jsonrpc": "2.0", **message})).session


def test_a_message_with_a_session_id_goes_to_its_stream():
    router = StreamRouter()

    assert route(router, method="session/update", params={"sessionId": "s"}) == "s"
    assert (
        route(router, method="session/request_permission", id=1, params={"sessionId": "s"}) == "s"
    )
    assert route(router, method="$/cancel_request", params={"requestId": 1}) is None
    assert route(router, method="_note") is None
    assert router.route(b"no message") == Route()


@pytest.mark.parametrize("method", ["session/prompt", "session/set_mode", "_mine/of_a_session"])
def test_a_response_goes_to_the_stream_of_its_request(method):
    router = StreamRouter()
    router.record_request(post(request(1, method, sessionId="s"), "s"), streaming=True)

    assert route(router, id=1, result={}) == "s"
    assert route(router, id=1, result={}) is None


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
def test_a_session_set_up_response_goes_to_the_connections_stream(method):
    router = StreamRouter()
    router.record_request(post(request(1, method, sessionId="s"), "s"), streaming=True)

    assert route(router, id=1, result={"sessionId": "s"}) is None


def test_ids_that_repeat_are_answered_in_order():
    router = StreamRouter()
    for session in ("a", "b"):
        router.record_request(
            post(request(1, "session/prompt", sessionId=session), session), streaming=True
        )
    router.record_request(post(request("1", "session/prompt", sessionId="c"), "c"), streaming=True)

    assert [route(router, id=1, result={}) for _ in range(3)] == ["a", "b", None]
    assert route(router, id="1", result={}) == "c"


@pytest.mark.parametrize(
    ("streaming", "header", "stream"), [(False, None, None), (True, None, "s")]
)
def test_a_session_that_was_never_named_by_header_nor_read_has_no_stream(streaming, header, stream):
    router = StreamRouter()
    router.record_request(
        post(request(1, "session/load", sessionId="s"), header), streaming=streaming
    )
    router.record_request(
        post(request(2, "session/prompt", sessionId="s"), "s"), streaming=streaming
    )

    assert route(router, method="session/update", params={"sessionId": "s"}) == stream
    assert route(router, id=2, result={}) == stream


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_the_response_to_a_close_marks_the_session_as_closed(method):
    router = StreamRouter()
    for id in (1, 2):
        router.record_request(post(request(id, method, sessionId="s"), "s"), streaming=True)
    refused = compact({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}})
    done = compact({"jsonrpc": "2.0", "id": 2, "result": {}})

    assert [router.route(line.encode()).closed for line in (refused, done)] == [None, "s"]


@pytest.mark.parametrize("answers", [[{"error": {"code": 1, "message": ""}}], [{"result": {}}] * 2])
def test_a_session_that_is_not_open_is_not_remembered_as_one_without_a_stream(answers):
    router = StreamRouter()
    for id, method in enumerate(["session/load", "session/close"]):
        router.record_request(
            post(request(id, method, sessionId="s"), "s" if id else None), streaming=False
        )
    for id, answer in enumerate(answers):
        route(router, id=id, **answer)

    assert router.streamless == set()


def test_a_malformed_response_is_forwarded_to_the_chain():
    posted = post({"jsonrpc": "2.0", "id": 1, "error": "no object"})

    assert posted.message is None
    assert not posted.is_request


def announced(parent: str, child: str) -> dict[str, Any]:
    update = {"sessionUpdate": "subagent_update", "sessionId": child}
    return {"method": "session/update", "params": {"sessionId": parent, "update": update}}


def test_the_session_of_a_subagent_has_the_stream_of_its_parent_until_it_has_its_own():
    own = set[str]()
    router = StreamRouter(has_stream=own.__contains__)
    asked = {"id": 1, "method": "session/request_permission", "params": {"sessionId": "grandchild"}}
    assert route(router, **asked) == "grandchild"

    assert route(router, **announced("s", "child")) == "s"
    assert route(router, **announced("child", "grandchild")) == "s"
    assert route(router, **asked) == "s"
    own.add("child")
    assert route(router, **asked) == "child"


def test_subagents_that_are_each_others_parents_have_a_stream():
    router = StreamRouter()
    route(router, **announced("a", "b"))
    route(router, **announced("b", "a"))
    route(router, **announced("c", "c"))

    assert [route(router, method="x", params={"sessionId": each}) for each in "abc"] == list("aac")


def test_the_session_of_a_subagent_follows_its_parent_to_the_connections_stream():
    router = StreamRouter(streamless={"s"})
    route(router, **announced("s", "child"))

    assert route(router, method="session/update", params={"sessionId": "child"}) is None


def test_a_session_that_is_never_announced_has_the_connections_stream_until_it_is_known():
    known = {"s"}
    router = StreamRouter(is_known=known.__contains__)
    said = {"method": "session/update", "params": {"sessionId": "child"}}

    assert route(router, method="x", params={"sessionId": "s"}) == "s"
    assert route(router, **said) is None
    known.add("child")
    assert route(router, **said) == "child"


@pytest.mark.parametrize("method", ["session/new", "session/load"])
def test_a_session_that_is_being_set_up_is_not_taken_for_that_of_a_subagent(method):
    router = StreamRouter(is_known=lambda _: False)
    router.record_request(post(request(1, method, sessionId="new"), "new"), streaming=False)
    said = {"method": "session/update", "params": {"sessionId": "new"}}

    assert route(router, **said) == "new"
    route(router, id=1, result={})
    assert route(router, **said) is None


def test_little_is_kept_of_invented_sessions_and_the_newest_are_remembered():
    router = StreamRouter(is_known="s".__eq__)

    for n in range(2500):
        route(router, method="x", params={"sessionId": f"{n}"})
        route(router, **announced("s", f"child {n}"))
    for long in ("y" * 1025, "z" * 1_000_000):
        assert route(router, method="x", params={"sessionId": long}) is None
        assert route(router, **announced("s", long)) == "s"
        assert route(router, **announced(long, "below")) is None
        assert route(router, method="x", params={"sessionId": long}) is None

    assert len(router.unannounced) == len(router.parents) == 2000
    assert max(map(len, [*router.unannounced, *router.parents, *router.parents.values()])) < 20
    assert route(router, method="x", params={"sessionId": "2499"}) is None
    assert route(router, method="x", params={"sessionId": "child 2499"}) == "s"


def test_a_session_with_a_long_id_has_its_stream():
    known, long = set[str](), "s" * 2000
    router = StreamRouter(is_known=known.__contains__)
    said = {"method": "session/update", "params": {"sessionId": long}}
    router.record_request(post(request(1, "session/load", sessionId=long), long), streaming=True)

    assert route(router, **said) == long
    known.add(long)
    route(router, id=1, result={})
    assert route(router, **said) == long


@pytest.mark.parametrize("from_below", [False, True])
def test_sessions_nested_too_deep_have_the_connections_stream(from_below):
    looked_up: list[str] = []
    router = StreamRouter(has_stream=lambda each: bool(looked_up.append(each)), is_known="0".__eq__)
    levels = range(1000)
    for n in reversed(levels) if from_below else levels:
        route(router, **announced(f"{n}", f"{n + 1}"))

    assert route(router, method="x", params={"sessionId": "31"}) == "0"
    assert route(router, method="x", params={"sessionId": "32"}) is None
    looked_up.clear()
    assert route(router, method="x", params={"sessionId": "1000"}) is None
    assert len(looked_up) <= 32


def test_sessions_below_one_whose_parent_is_forgotten_have_the_connections_stream():
    router = StreamRouter(is_known="s".__eq__)
    route(router, **announced("s", "child"))
    route(router, **announced("child", "grandchild"))
    said = {"method": "session/update", "params": {"sessionId": "grandchild"}}

    assert route(router, **said) == "s"
    del router.parents["child"]
    assert route(router, **said) is None
