"""What is replayed of a trace: the messages at one end of a chain."""

from __future__ import annotations

import msgspec
import pytest
from support.trace_records import TraceScript

from conductor.tracing.conversation import ConversationError, conversation, message_label

SERVER = {"type": "acp", "name": "n", "serverId": "s-1"}


def labels(script, end, chain=None):
    senders = {"agent": "client", "client": "agent"}  # by direction
    found = conversation(script.records, end, chain)
    return [(senders[each.toward], message_label(each)) for each in found]


def changed(script, **values):
    """Change the record that was added last."""
    script.records[-1] = msgspec.structs.replace(script.records[-1], **values)


def test_each_end_has_the_messages_of_its_hop():
    script = TraceScript("client", "notes", "agent")
    first = script.request("client>notes", "session/prompt", {"sessionId": "s"})
    second = script.request("notes>agent", "session/prompt", {"sessionId": "s", "more": 1})
    script.update("agent>notes", "a")
    script.update("notes>client", "A")
    script.answer(second, {"stopReason": "end_turn"})
    script.answer(first, {"stopReason": "end_turn"})

    both = [
        ("client", "session/prompt?"),
        ("agent", "session/update agent_message_chunk"),
        ("agent", "answer to session/prompt"),
    ]
    assert labels(script, "client") == labels(script, "agent") == both
    asked, update, answer = conversation(script.records, "agent")
    assert (asked.params, asked.session) == ({"sessionId": "s", "more": 1}, "s")
    assert update.params["update"]["content"]["text"] == "a"
    assert (answer.request, answer.n) == (asked.n, 5)


def test_the_end_of_the_agent_is_before_the_mcp_bridge():
    script = TraceScript("client", "notes", "mcp-bridge", "agent")
    asked = script.request("notes>mcp-bridge", "session/new", {"mcpServers": [SERVER]})
    script.request("mcp-bridge>agent", "session/new", {"mcpServers": []})
    call = script.request("mcp-bridge>notes", "tools/call", {"name": "look"}, mcp_server="s-1")
    script.answer(call, {"content": []})
    script.answer(asked, {"sessionId": "s"})

    assert labels(script, "agent") == [
        ("client", "session/new?"),
        ("agent", "tools/call?"),
        ("client", "answer to tools/call"),
        ("agent", "answer to session/new"),
    ]


def test_a_request_that_was_routed_again_to_an_inserted_bridge_is_there_once():
    script = TraceScript("client", "notes", "mcp-bridge", "agent")
    components = tuple(each for each in script.records[0].components if each.name != "mcp-bridge")
    changed(script, components=components)
    first = script.request("notes>agent", "session/new", {"mcpServers": [SERVER]})
    again = script.request("notes>mcp-bridge", "session/new", {"mcpServers": [SERVER]}, cause=first)
    changed(script, to="mcp-bridge")
    script.answer(again, {"sessionId": "s"})
    changed(script, from_="mcp-bridge")

    assert labels(script, "agent") == [
        ("client", "session/new?"),
        ("agent", "answer to session/new"),
    ]


def test_what_the_conductor_asks_a_restarted_agent_is_left_out():
    script = TraceScript("client", "agent")
    asked = script.request("client>agent", "session/prompt", {"sessionId": "s"})
    script.answer(asked, {"stopReason": "end_turn"})
    again = script.request("client>agent", "session/load", {"sessionId": "s"})
    changed(script, sender="conductor", from_="conductor")
    script.answer(again, {})
    changed(script, receiver="conductor", to="conductor")

    assert labels(script, "agent") == [
        ("client", "session/prompt?"),
        ("agent", "answer to session/prompt"),
    ]


def test_what_was_open_when_the_chain_ended_was_not_answered_by_an_end():
    ended = {"code": -32603, "message": "The chain ended before this was answered"}
    script = TraceScript("client", "agent")
    prompt = script.request("client>agent", "session/prompt")
    asked = script.request("agent>client", "session/request_permission")
    script.answer(asked, ended, is_error=True)
    script.answer(prompt, ended, is_error=True)

    assert labels(script, "client") == [("client", "session/prompt?")]


def test_a_response_without_its_request_is_left_out():
    script = TraceScript("client", "agent")
    asked = script.request("client>agent", "initialize")
    script.answer(asked, {})
    del script.records[1]
    script.update("agent>client", "a")

    assert labels(script, "client") == [("agent", "session/update agent_message_chunk")]


def test_one_of_several_chains_is_chosen():
    script, other = (TraceScript("client", "agent", chain=name) for name in ("c/1", "c/2"))
    script.update("agent>client", "a")
    other.notify("agent>client", "hello")
    script.records += other.records

    assert labels(script, "client", "c/2") == [("agent", "hello")]
    with pytest.raises(ConversationError, match="several chains, choose one: c/1, c/2"):
        conversation(script.records, "client")
    with pytest.raises(ConversationError, match="no chain is called 'c/3'; there are: c/1, c/2"):
        conversation(script.records, "client", "c/3")


@pytest.mark.parametrize("values", [{"head": "{", "params": None}, {"params": None}, {"count": 2}])
def test_a_trace_without_payloads_cannot_be_replayed(values):
    script = TraceScript("client", "agent")
    script.update("agent>client", "a")
    changed(script, **values)

    with pytest.raises(ConversationError, match=r"#1 session/update .*--trace-payloads full"):
        conversation(script.records, "client")


def test_an_empty_trace_cannot_be_replayed():
    with pytest.raises(ConversationError, match="no messages"):
        conversation(TraceScript().records, "client")


def test_a_cancellation_is_told_by_the_answer_to_its_request():
    script = TraceScript()
    asked = script.request("client>notes", "session/prompt", {"sessionId": "s"})
    script.cancel(asked)
    error = {"code": -32800, "message": "Request cancelled"}
    script.answer(asked, error, is_error=True, cancelled=True)

    assert labels(script, "client") == [
        ("client", "session/prompt?"),
        ("agent", "error to session/prompt"),
    ]
    assert conversation(script.records, "client")[-1].cancelled
