from support.trace_records import TraceScript

from conductor.tracing.links import MessageWays

PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}


def example():
    script = TraceScript("client", "notes", "guard", "agent")
    one = script.request("client>notes", "session/prompt", PROMPT)  # 1
    two = script.request("notes>guard", "session/prompt", PROMPT)  # 2
    three = script.request("guard>agent", "session/prompt", PROMPT)  # 3
    script.update("agent>guard", "hello", cause=three)  # 4
    script.answer(three, {})  # 5
    script.answer(two, {})  # 6
    script.answer(one, {})  # 7
    script.handler("notes", 1, method="session/prompt")
    script.log("info", "decided", message=1)
    return MessageWays(script.records)


def numbers(messages):
    return [each.n for each in messages]


def test_the_way_is_the_same_from_each_hop():
    ways = example()

    found = [numbers(ways.way(ways.messages[n])) for n in (1, 2, 3, 5, 6, 7)]

    assert found == [[1, 2, 3]] * 3 + [[5, 6, 7]] * 3


def test_a_request_has_one_answer_on_all_its_hops():
    ways = example()

    assert numbers(ways.answers(ways.way(ways.messages[2]))) == [5]


def test_what_was_sent_meanwhile_is_not_the_message_itself():
    ways = example()

    assert numbers(ways.also_sent(ways.messages[3])) == [4]
    assert numbers(ways.passed_on(ways.messages[2])) == [3]


def test_handlers_and_log_events_belong_to_their_message():
    ways = example()

    assert [each.component for each in ways.handlers[1]] == ["notes"]
    assert [each.event for each in ways.logs[1]] == ["decided"]


def test_the_way_goes_on_through_a_component_that_was_inserted_for_the_request():
    script = TraceScript("client", "agent")
    first = script.request("client>agent", "session/new")  # 1
    second = script.request("client>bridge", "session/new", cause=first)  # 2
    script.request("bridge>agent", "session/new", cause=second)  # 3
    ways = MessageWays(script.records)

    assert [numbers(ways.way(ways.messages[n])) for n in (1, 2, 3)] == [[1, 2, 3]] * 3


def test_links_in_a_circle_end():
    script = TraceScript()
    script.update("agent>notes", "a", cause=2)
    script.update("notes>client", "a", cause=1)
    script.update("agent>notes", "a", cause=3)
    ways = MessageWays(script.records)

    assert [numbers(ways.way(each)) for each in ways.messages.values()] == [[1, 2], [1, 2], [3]]
