"""Rows of a trace, its lanes, links and usage."""

from __future__ import annotations

import json

from support.trace_records import TraceScript

from conductor.tracing.records import NotificationRecord, RequestRecord
from conductor.viewer.trace_index import Row, TraceIndex

FIELDS = Row.__struct_fields__


def index_of(records) -> TraceIndex:
    index = TraceIndex()
    for each in records:
        index.add(each)
    return index


def rows(index: TraceIndex) -> list[dict]:
    return [dict(zip(FIELDS, json.loads(each), strict=True)) for each in index.rows]


def test_a_row_has_what_the_page_draws(turn):
    index = index_of(turn.records)

    names = index.strings
    first = rows(index)[1]
    assert (first["type"], first["n"], first["ts"]) == ("q", 1, 0.25)
    assert (names[first["sender"]], names[first["receiver"]]) == ("client", "notes")
    assert (names[first["method"]], names[first["session"]]) == ("session/prompt", "s")
    assert (first["text"], first["extra"], first["toward_agent"]) == (
        '"What is new?"',
        {"turn": 1},
        1,
    )


def test_the_agents_usage_is_that_of_its_session(turn):
    index = index_of(turn.records)

    usage = index.usage["s"]
    assert usage["tokens"] == {"inputTokens": 40, "outputTokens": 2, "totalTokens": 42}
    assert (usage["cost"], usage["used"], usage["size"], usage["turns"]) == (
        {"USD": 0.25},
        500,
        1000,
        1,
    )


def test_a_turn_of_version_2_is_counted_at_its_end_with_its_usage():
    script = TraceScript("client", "agent")
    prompt = script.request("client>agent", "session/prompt", {"sessionId": "s", "prompt": []})
    script.answer(prompt, {"messageId": "m"}, session="s")
    assert index_of(script.records).usage == {}
    update = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    update["usage"] = {"totalTokens": 20}
    script.notify("agent>client", "session/update", {"sessionId": "s", "update": update})

    usage = index_of(script.records).usage["s"]
    assert (usage["turns"], usage["tokens"]) == (1, {"totalTokens": 20})


def test_a_changed_payload_is_linked_in_order():
    script = TraceScript("client", "one", "agent")
    for text in ("a", "b"):
        script.update("agent>one", text)
        script.update("one>client", text.upper())

    assert index_of(script.records).links() == [(2, 1, "order", 1), (4, 3, "order", 1)]


def test_an_inserted_component_has_its_lane_before_the_agent():
    script = TraceScript("client", "notes", "agent")
    script.records.append(
        RequestRecord(
            ts=1, n=1, id=1, protocol="acp", method="x", params=None,
            from_="Proxy(0)", to="mcp-bridge", sender="notes", receiver="mcp-bridge",
        )
    )  # fmt: skip

    assert index_of(script.records).lanes() == ["client", "notes", "mcp-bridge", "agent"]


def test_the_conductor_has_a_lane_only_if_it_sends_messages():
    script = TraceScript()
    script.log("info", "chain initialized", component="conductor")
    assert index_of(script.records).lanes() == ["client", "notes", "agent"]

    script.records.append(
        NotificationRecord(
            ts=1.0, n=1, protocol="acp", method="_note", params=None, from_="Proxy(0)",
            to="Client", sender="conductor", receiver="client",
        )
    )  # fmt: skip
    assert index_of(script.records).lanes() == ["client", "conductor", "notes", "agent"]


def test_the_file_of_another_conductor_has_lanes_and_links():
    ends = {"from_": "Client", "to": "Proxy(0)", "sender": "Client", "receiver": "Proxy(0)"}
    next_ends = {"from_": "Proxy(0)", "to": "Agent", "sender": "Proxy(0)", "receiver": "Agent"}
    common = {"protocol": "acp", "method": "session/cancel", "params": {"sessionId": "s"}}
    records = [
        NotificationRecord(ts=1.0, n=1, **common, **ends),
        NotificationRecord(ts=1.1, n=2, **common, **next_ends),
    ]

    index = index_of(records)

    assert index.lanes() == ["Client", "Proxy(0)", "Agent"]
    assert index.links() == [(2, 1, "equal payload", 0)]


def test_a_message_that_a_component_changed_is_marked(turn):
    changed = [each["n"] for each in rows(index_of(turn.records)) if each["is_changed"]]

    assert changed == [2]


def test_marks_between_proxies_are_no_change():
    script = TraceScript()
    params = {"a": 1, "_meta": {"acp-conductor/mark": 1}}
    cause = script.notify("client>notes", "x", params)
    script.notify("notes>agent", "x", {"a": 1}, cause=cause)

    assert [each["is_changed"] for each in rows(index_of(script.records))] == [0, 0, 0]
