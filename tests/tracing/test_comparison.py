from itertools import pairwise

from support.trace_records import TraceScript

from conductor.tracing.comparison import Normalizer, compare


def run(session="s", tool="t1", texts=("a", "b"), names=()):
    """A turn of one run, with the ids of that run."""
    script = TraceScript(*names)
    for sender, receiver in pairwise(script.names):
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
        script.request(f"{sender}>{receiver}", "session/prompt", prompt)
    backwards = script.names[::-1]
    updates = [{"sessionUpdate": "tool_call", "toolCallId": tool, "title": "Read"}]
    for text in texts:
        content = {"type": "text", "text": text}
        updates.append({"sessionUpdate": "agent_message_chunk", "content": content})
    for update in updates:
        for sender, receiver in pairwise(backwards):
            params = {"sessionId": session, "update": update}
            script.notify(f"{sender}>{receiver}", "session/update", params)
    return script.records


def found(old, new, ignored=()):
    return [
        (
            each.lane,
            None if each.old is None else each.old.n,
            None if each.new is None else each.new.n,
        )
        for each in compare(old, new, ignored).differences
    ]


def test_runs_that_differ_in_ids_and_times_are_equal():
    comparison = compare(run(), run(session="other", tool="call-9"))

    assert (comparison.equal, comparison.differences) == (8, [])


def test_a_changed_payload_is_one_difference_on_each_hop():
    assert found(run(), run(texts=("a", "B"))) == [
        ("agent → notes", 7, 7),
        ("notes → client", 8, 8),
    ]


def test_a_message_too_many_or_too_few_is_found():
    assert found(run(), run(texts=("a", "x", "b"))) == [
        ("agent → notes", None, 7),
        ("notes → client", None, 8),
    ]
    assert found(run(), run(texts=("b",))) == [
        ("agent → notes", 5, None),
        ("notes → client", 6, None),
    ]


def test_the_most_similar_messages_are_paired():
    old = run(texts=("something else", "a long text that stays"), names=("client", "agent"))
    new = run(texts=("a long text that is changed",), names=("client", "agent"))

    assert found(old, new) == [("agent → client", 3, None), ("agent → client", 4, 3)]


def test_a_message_in_place_of_another_of_its_kind_is_one_difference():
    old = run(texts=("a", "x", "b"), names=("client", "agent"))
    new = run(texts=("a", "y", "z", "b"), names=("client", "agent"))

    assert found(old, new) == [("agent → client", 4, 4), ("agent → client", None, 5)]


def test_chains_of_different_components_are_compared_at_their_ends():
    old, new = run(), run(names=("client", "first", "second", "agent"))

    comparison = compare(old, new)

    assert comparison.only_ends
    assert (comparison.equal, comparison.differences) == (8, [])


def test_what_a_component_of_both_chains_sends_is_compared_also_if_others_differ():
    old = run(names=("client", "notes", "agent"))
    new = run(names=("client", "notes", "other", "agent"))
    for each in new:
        if getattr(each, "sender", "") == "notes" and each.receiver == "other":
            each.params = {**each.params, "mine": True}

    assert found(old, run(names=("client", "notes", "other", "agent"))) == []
    assert found(old, new) == [("notes, toward the agent", 2, 2)]


def test_sessions_are_told_apart_by_their_order():
    def two(*sessions):
        script = TraceScript("client", "agent")
        script.notify("client>agent", "m", {"sessionId": "x"})
        script.notify("client>agent", "m", {"sessionId": "y"})
        for session in sessions:
            script.update("agent>client", "text", session=session)
            script.records[-1].params["sessionId"] = session
        return script.records

    assert found(two("x", "y"), two("x", "y")) == []
    assert found(two("x", "x"), two("y", "y")) != []


def test_ignored_members_are_left_out():
    script, other = TraceScript(), TraceScript()
    script.request("client>notes", "session/new", {"cwd": "/a"})
    other.request("client>notes", "session/new", {"cwd": "/b"})

    assert found(script.records, other.records, {"cwd"}) == []
    assert len(found(script.records, other.records)) == 1


def test_values_of_one_run_are_replaced():
    normalizer = Normalizer()
    normalizer.see_session("abc")
    value = {
        "sessionId": "abc",
        "text": "at 2026-01-31T14:03:20.5Z in 01234567-89ab-cdef-0123-456789abcdef",
        "list": [{"toolCallId": "x", "updatedAt": "now", "n": 1}, None],
        "_meta": {"acp-conductor/handled": ["usage"]},
        "abc": True,
    }

    assert normalizer.normalize(value) == {
        "sessionId": "<session 1>",
        "text": "at <time> in <uuid>",
        "list": [{"toolCallId": "<toolCallId>", "updatedAt": "<time>", "n": 1}, None],
        "<session 1>": True,
    }


def test_deep_and_strange_payloads_are_compared():
    deep = []
    for _ in range(100_000):
        deep = [deep]

    def run(*payloads):
        script = TraceScript("client", "agent")
        for payload in (deep, *payloads):
            script.notify("client>agent", "m", None)
            script.records[-1].params = payload
        return script.records

    strange = run(["\ud800"], [2**70])
    assert compare(strange, run(["\ud800"], [2**70])).differences == []
    assert len(compare(strange, run(["\ud801"], [2**71])).differences) == 2
