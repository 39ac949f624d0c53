from support.trace_records import TraceScript

from conductor.tracing.records import LossRecord
from conductor.tracing.statistics import Durations, statistics

PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}


def example():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)  # 0.25 s
    second = script.request("notes>agent", "session/prompt", PROMPT)  # 0.5
    script.update("agent>notes", "hello")  # 0.75
    script.update("notes>client", "hello")  # 1.0
    script.answer(second, {"stopReason": "end_turn"}, session="s")  # 1.25
    script.answer(first, {"stopReason": "end_turn"}, session="s")  # 1.5
    script.handler("notes", first, handler="/notes.py:7", took=0.5)
    other = script.request("client>notes", "session/load", {"sessionId": "s"})  # 2.0
    script.answer(other, {"code": 1, "message": "no"}, is_error=True)  # 2.25
    return statistics(script.records)


def test_percentiles_are_by_nearest_rank():
    assert Durations.of([]) is None
    assert Durations.of([3.0]) == Durations(1, 3.0, 3.0, 3.0, 3.0, 3.0)
    hundred = [float(each) for each in range(100, 0, -1)]
    assert Durations.of(hundred) == Durations(100, 5050.0, 50.0, 95.0, 99.0, 100.0)


def test_a_message_counts_once_and_its_records_on_every_hop():
    found = example()

    assert (found.messages, found.records, found.errors, found.lost) == (5, 8, 1, 0)
    assert found.seconds == 2.25


def test_durations_of_hops_methods_components_and_handlers():
    found = example()

    hops = [(row.name, row.messages, row.durations) for row in found.hops]
    assert hops == [
        ("client, notes", 5, Durations(2, 1.5, 0.25, 1.25, 1.25, 1.25)),
        ("notes, agent", 3, Durations.of([0.75])),
    ]
    assert [(row.name, row.durations) for row in found.methods] == [
        ("session/prompt", Durations.of([1.25])),
        ("session/load", Durations.of([0.25])),
        ("session/update agent_message_chunk", None),
    ]
    assert [(row.name, row.messages, row.durations) for row in found.components] == [
        ("notes", 3, Durations.of([0.25] * 3))
    ]
    assert [(row.name, row.durations) for row in found.handlers] == [
        ("notes /notes.py:7", Durations.of([0.5]))
    ]


def test_turns_have_their_updates():
    (turn,) = example().turns

    assert (turn.request.n, turn.seconds, turn.updates, turn.tool_calls) == (1, 1.25, 1, 0)
    assert (turn.stop_reason, turn.is_error) == ("end_turn", False)


def test_a_turn_of_version_2_lasts_until_its_work_has_ended():
    script = TraceScript("client", "agent")

    def state(name, **more):
        update = {"sessionUpdate": "state_update", "state": name, **more}
        script.notify("agent>client", "session/update", {"sessionId": "s", "update": update})

    state("running")  # 0.25 s
    state("idle")
    prompt = script.request("client>agent", "session/prompt", PROMPT)  # 0.75
    script.answer(prompt, {"messageId": "m"}, session="s")  # 1.0
    state("idle", stopReason="end_turn", background=[{"id": "b"}])
    state("running")  # 1.5
    script.update("agent>client", "hello")
    state("idle", stopReason="refusal")  # 2.0
    script.answer(
        script.request("client>agent", "session/prompt", PROMPT), {"code": 1}, is_error=True
    )

    state("running")
    state("idle", stopReason="end_turn")

    turn, refused = statistics(script.records).turns
    assert (turn.seconds, turn.stop_reason, turn.updates) == (1.25, "refusal", 4)
    assert (refused.seconds, refused.stop_reason, refused.is_error) == (0.25, None, True)


def test_an_empty_trace_has_no_numbers():
    assert statistics([]).messages == 0


def test_a_hop_is_named_from_the_client_also_if_its_first_message_goes_to_the_client():
    script = TraceScript()
    script.update("notes>client", "hello")

    (hop,) = statistics(script.records).hops
    assert hop.name == "client, notes"


def test_a_record_without_a_time_does_not_count_for_the_duration():
    script = TraceScript()
    script.update("agent>notes", "hello")
    script.records.append(LossRecord(ts=0.1, count=2))

    assert (statistics(script.records).seconds, statistics(script.records).lost) == (0.25, 2)


def test_the_wait_for_an_inserted_component_is_not_time_in_the_sender():
    script = TraceScript("client", "agent")
    first = script.request("client>agent", "session/new")
    second = script.request("client>bridge", "session/new", cause=first)
    script.request("bridge>agent", "session/new", cause=second)

    found = statistics(script.records)

    assert [each.name for each in found.components] == ["bridge"]
    assert found.messages == 1


def test_initialize_of_an_mcp_server_is_another_method():
    script = TraceScript()
    first = script.request("client>agent", "initialize", {"protocolVersion": 1})
    script.answer(first, {})
    second = script.request("agent>client", "initialize", {}, protocol_="mcp")
    script.answer(second, {})

    assert {each.name for each in statistics(script.records).methods} == {
        "initialize",
        "initialize (MCP)",
    }
