from support.trace_records import TraceScript

from conductor.tracing.links import Cause, MessageWays, find_causes, is_same_message
from conductor.tracing.records import TraceHeader
from conductor.tracing.trace_component import TraceComponent

PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}


def causes(script):
    return {n: (cause.n, cause.how) for n, cause in find_causes(script.records).items()}


def test_recorded_links_are_kept():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)
    second = script.request("notes>agent", "session/prompt", {"x": 1}, cause=first)
    answer = script.answer(second, {}, cause=second)

    assert find_causes(script.records) == {second: Cause(first), answer: Cause(second)}


def with_bridge_inserted():
    """A request of a process, for which a bridge is inserted, and its answer; a later prompt."""
    setup = {"cwd": "/"}
    script = TraceScript()
    first = script.request("client>notes", "session/new", setup)  # 1
    second = script.request("notes>agent", "session/new", setup)  # 2
    third = script.request("notes>bridge", "session/new", setup, cause=second)  # 3
    last = script.request("bridge>agent", "session/new", {"x": 1}, cause=third)  # 4
    answer = script.answer(last, {})  # 5
    script.answer(third, {}, cause=answer)  # 6
    script.answer(first, {})  # 7
    script.request("client>notes", "session/prompt", PROMPT)  # 8
    script.request("notes>bridge", "session/prompt", PROMPT)  # 9
    return script


def test_a_process_before_an_inserted_bridge_keeps_its_links():
    assert causes(with_bridge_inserted()) == {
        2: (1, "equal payload"),
        3: (2, "recorded"),
        4: (3, "recorded"),
        5: (4, "request"),
        6: (5, "recorded"),
        7: (6, "request"),
        9: (8, "equal payload"),
    }


def test_an_error_that_the_conductor_sends_for_a_process_leaves_its_links():
    script = TraceScript()
    refused = script.request("client>notes", "session/load", {"a": 1})
    script.answer(refused, {"code": 1, "message": "no"}, is_error=True, cause=refused)
    first = script.request("client>notes", "session/prompt", PROMPT)
    second = script.request("notes>agent", "session/prompt", PROMPT)

    assert causes(script)[second] == (first, "equal payload")


def test_an_equal_payload_is_the_same_message_whatever_was_dropped_before_it():
    script = TraceScript()
    dropped, kept = (script.update("agent>notes", text) for text in ("a", "b"))
    passed = script.update("notes>client", "b")

    assert causes(script) == {passed: (kept, "equal payload")}
    assert dropped not in {n for n, _ in causes(script).values()}


def test_equal_messages_are_linked_in_order():
    script = TraceScript()
    came = [script.update("agent>notes", "same") for _ in range(3)]
    went = [script.update("notes>client", "same") for _ in range(3)]

    assert causes(script) == {
        out: (into, "equal payload") for out, into in zip(went, came, strict=True)
    }


def test_changed_messages_are_linked_in_order_between_equal_ones():
    script = TraceScript()
    a, b, c, d = (script.update("agent>notes", text) for text in "abcd")
    out_a = script.update("notes>client", "a")
    changed = script.update("notes>client", "B")
    out_c = script.update("notes>client", "c")
    last = script.update("notes>client", "D")

    assert causes(script) == {
        out_a: (a, "equal payload"),
        changed: (b, "order"),
        out_c: (c, "equal payload"),
        last: (d, "order"),
    }


def test_a_message_of_the_component_itself_is_not_linked_over_an_equal_one():
    script = TraceScript()
    script.update("agent>notes", "a")
    script.update("notes>client", "a")
    own = script.update("notes>client", "own")
    script.update("agent>notes", "later")

    assert own not in causes(script)


def test_sessions_methods_and_directions_do_not_mix():
    script = TraceScript()
    script.notify("agent>notes", "session/update", {"sessionId": "other", "x": 1})
    script.notify("agent>notes", "other", {"sessionId": "s", "x": 1})
    script.notify("client>notes", "session/update", {"sessionId": "s", "x": 1})
    script.notify("notes>client", "session/update", {"sessionId": "s", "x": 2})

    assert causes(script) == {}


def test_responses_are_linked_through_their_requests():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)
    second = script.request("notes>agent", "session/prompt", PROMPT)
    of_agent = script.answer(second, {"stopReason": "end_turn"})
    to_client = script.answer(first, {"stopReason": "refusal"})

    assert causes(script) == {
        second: (first, "equal payload"),
        of_agent: (second, "request"),
        to_client: (of_agent, "request"),
    }


def test_a_component_that_answers_itself_is_the_end_of_the_request():
    script = TraceScript()
    request = script.request("client>notes", "session/prompt", PROMPT)
    answer = script.answer(request, {"stopReason": "end_turn"})

    assert causes(script) == {answer: (request, "request")}


def test_messages_of_plugins_without_a_recorded_cause_are_their_own():
    script = TraceScript()
    components = (TraceComponent("notes", "Proxy(0)", "plugin"),)
    script.records[0] = TraceHeader(ts=0.0, chain="demo", components=components)
    script.update("agent>notes", "a")
    script.update("notes>client", "a")

    assert causes(script) == {}


def test_payloads_that_were_left_out_are_compared_by_their_beginning_and_size():
    script = TraceScript()
    for head, size in (("a", 900), ("b", 900)):
        script.notify("agent>notes", "m", None, head=head, size=size)
    went = script.notify("notes>client", "m", None, head="b", size=900)

    assert causes(script) == {went: (2, "equal payload")}


def test_a_message_sent_back_is_not_the_same():
    script = TraceScript()
    script.update("agent>notes", "a")
    script.update("notes>agent", "a")
    came, back = script.records[1:]

    assert not is_same_message(came, back)


def test_a_cancellation_is_linked_through_its_request():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)
    second = script.request("notes>agent", "session/prompt", PROMPT)
    came, went = script.cancel(first), script.cancel(second)

    assert causes(script) == {second: (first, "equal payload"), went: (came, "request")}


def test_a_component_cancels_a_request_of_its_own():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)
    second = script.request("notes>agent", "session/prompt", PROMPT)
    script.cancel(second)

    assert causes(script) == {second: (first, "equal payload")}


def test_a_record_of_several_messages_is_linked_with_all_of_them():
    """As the flight recorder keeps a batch of notifications."""
    script = TraceScript()
    one = script.update("agent>notes", "one")
    many = script.update("agent>notes", "two", count=3)
    last = script.update("agent>notes", "last")
    single = [script.update("notes>client", each) for each in ("one", "2", "3", "4", "last")]

    assert causes(script) == {
        single[0]: (one, "equal payload"),
        **dict.fromkeys(single[1:4], (many, "order")),
        single[4]: (last, "equal payload"),
    }


def test_several_messages_that_leave_as_one_record_are_all_linked():
    script = TraceScript()
    first, _, third, last = [script.update("agent>notes", each) for each in ("1", "2", "3", "4")]
    batch = script.update("notes>client", "1", count=2)
    rest = script.update("notes>client", "3")
    changed = script.update("notes>client", "four")

    assert causes(script) == {
        batch: (first, "order"),
        rest: (third, "equal payload"),
        changed: (last, "order"),
    }


def test_links_in_a_circle_end():
    script = TraceScript()
    script.update("agent>notes", "a", cause=2)
    script.update("notes>client", "a", cause=1)
    script.update("agent>notes", "a", cause=3)
    ways = MessageWays(script.records)

    assert [[one.n for one in ways.way(each)] for each in ways.messages.values()] == [
        [1, 2],
        [1, 2],
        [3],
    ]
