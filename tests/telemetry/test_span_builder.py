"""Spans of the records of a trace."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from support.trace_records import START, STEP, TraceScript

from conductor.telemetry.span_builder import SpanBuilder

TRACE, SPAN = 0x80E1AFED08E019FC1110464CFA66635C, 0x7A085853722DC6D2
PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "the secret plan"}]}


def all_spans_of(script, **options):
    """All spans, in the order in which they ended."""
    exported = InMemorySpanExporter()
    builder = SpanBuilder(SimpleSpanProcessor(exported), **options)
    builder.add(script.records)
    builder.end(START + script.ts)
    return exported.get_finished_spans()


def spans_of(script, **options):
    """All spans, by name."""
    found = all_spans_of(script, **options)
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


def tree(spans):
    """The name of each span's parent."""
    of_id = {each.context.span_id: each.name for each in spans.values()}
    return {name: each.parent and of_id.get(each.parent.span_id) for name, each in spans.items()}


def time_after(steps):
    """Nanoseconds since 1970 of a record."""
    return int((START + steps * STEP) * 1000) * 1_000_000


def prompt(script, **others):
    """A prompt on both hops; returns the numbers of the requests."""
    return [
        script.request("client>notes", "session/prompt", PROMPT, **others),
        script.request("notes>agent", "session/prompt", PROMPT, **others),
    ]


def end_turn(script, requests, result=None):
    for request in reversed(requests):
        script.answer(request, result or {"stopReason": "end_turn"})


def tool(script, what, /, hops=("agent>notes", "notes>client"), **members):
    update = {"sessionUpdate": what, "toolCallId": "t1", **members}
    for hop in hops:
        script.notify(hop, "session/update", {"sessionId": "s", "update": update})


def test_a_turn_is_one_trace_with_a_span_for_each_hop():
    script = TraceScript()
    end_turn(script, prompt(script))

    spans = spans_of(script)

    assert tree(spans) == {
        "invoke_agent agent": None,
        "session/prompt agent": "invoke_agent agent",
    }
    root, hop = spans["invoke_agent agent"], spans["session/prompt agent"]
    assert root.context.trace_id == hop.context.trace_id
    assert (root.kind, hop.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert (root.start_time, root.end_time) == (time_after(1), time_after(4))
    assert (hop.start_time, hop.end_time) == (time_after(2), time_after(3))
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["gen_ai.conversation.id"] == "s"
    assert root.attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert root.attributes["acp_conductor.record"] == 1
    assert hop.attributes["acp_conductor.component"] == "agent"


def test_tokens_model_agent_and_cost_are_attributes_of_the_turn():
    script = TraceScript()
    first = script.request("client>agent", "initialize", {})
    script.answer(first, {"agentInfo": {"name": "claude", "version": "2"}})
    new = script.request("client>agent", "session/new", {"cwd": "/"})
    script.answer(new, {"sessionId": "s", "models": {"currentModelId": "opus"}}, session="s")
    requests = prompt(script)
    update = {"sessionUpdate": "usage_update", "used": 90, "size": 200}
    update["cost"] = {"amount": 0.5, "currency": "USD"}
    script.notify("agent>notes", "session/update", {"sessionId": "s", "update": update})
    usage = {"inputTokens": 10, "outputTokens": 20, "cachedReadTokens": 5, "totalTokens": 35}
    end_turn(script, requests, {"stopReason": "max_tokens", "usage": usage})

    attributes = spans_of(script)["invoke_agent claude"].attributes

    assert attributes["gen_ai.provider.name"] == "claude"
    assert attributes["gen_ai.request.model"] == "opus"
    assert attributes["gen_ai.usage.input_tokens"] == 10
    assert attributes["gen_ai.usage.output_tokens"] == 20
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 5
    assert attributes["acp_conductor.context.used"] == 90
    assert attributes["acp_conductor.session.cost"] == 0.5


SMALL = {"configId": "m", "category": "model", "currentValue": "small"}
LARGE = {**SMALL, "currentValue": "large"}


@pytest.mark.parametrize("told_by", ["the agent", "an option", "session/set_model"])
def test_the_model_of_a_turn_is_the_one_that_is_set_in_either_form(told_by):
    script = TraceScript()
    new = script.request("client>agent", "session/new", {"cwd": "/"})
    script.answer(new, {"sessionId": "s", "configOptions": [SMALL]}, session="s")
    end_turn(script, prompt(script))
    if told_by == "the agent":
        update = {"sessionUpdate": "config_option_update", "configOptions": [LARGE]}
        script.notify("agent>client", "session/update", {"sessionId": "s", "update": update})
    elif told_by == "an option":
        params = {"sessionId": "s", "configId": "m", "value": "large"}
        asked = script.request("client>agent", "session/set_config_option", params)
        script.answer(asked, {"configOptions": [LARGE]})
    else:
        params = {"sessionId": "s", "modelId": "large"}
        script.answer(script.request("client>agent", "session/set_model", params), {})
    end_turn(script, prompt(script))

    turns = [each for each in all_spans_of(script) if each.name == "invoke_agent agent"]

    assert [each.attributes["gen_ai.request.model"] for each in turns] == ["small", "large"]


@pytest.mark.parametrize(
    "about",
    [
        {"toolCall": {"toolCallId": "t1"}},
        {"subject": {"type": "tool_call", "toolCall": {"toolCallId": "t1"}}},
        {"subject": {"type": "command", "command": "rm", "toolCallId": "t1"}},
    ],
)
def test_a_permission_request_is_below_its_tool_call(about):
    script = TraceScript()
    requests = prompt(script)
    tool(script, "tool_call", kind="execute", title="rm -rf /secret", status="pending")
    asked = {"sessionId": "s", **about}
    asked["options"] = [{"optionId": "1", "kind": "allow_once", "name": "Yes"}]
    inner = script.request("agent>notes", "session/request_permission", asked)
    outer = script.request("notes>client", "session/request_permission", asked)
    chosen = {"outcome": {"outcome": "selected", "optionId": "1"}}
    script.answer(outer, chosen)
    script.answer(inner, chosen)
    tool(script, "tool_call_update", status="in_progress")
    tool(script, "tool_call_update", status="completed")
    end_turn(script, requests)

    spans = spans_of(script)

    assert tree(spans) == {
        "invoke_agent agent": None,
        "session/prompt agent": "invoke_agent agent",
        "execute_tool execute": "session/prompt agent",
        "session/request_permission notes": "execute_tool execute",
        "session/request_permission client": "session/request_permission notes",
    }
    call = spans["execute_tool execute"]
    assert call.attributes["gen_ai.tool.call.id"] == "t1"
    assert call.attributes["acp_conductor.tool.status"] == "completed"
    assert (call.start_time, call.end_time) == (time_after(3), time_after(11))
    permission = spans["session/request_permission client"]
    assert permission.attributes["acp_conductor.permission.outcome"] == "allow_once"


@pytest.mark.parametrize(
    "named",
    [
        {"_meta": {"claudeCode": {"toolName": "Bash"}}},
        {"name": "Bash"},
        {"name": None, "_meta": {"toolName": "Bash"}},
    ],
)
def test_a_tool_call_has_its_name_and_may_fail_or_not_end(named):
    script = TraceScript()
    requests = prompt(script)
    tool(script, "tool_call", kind="execute", **named)
    tool(script, "tool_call_update", status="failed")
    other = {"sessionUpdate": "tool_call", "toolCallId": "t2", "kind": ["read"]}
    odd = {**other, "status": ["completed"]}
    for update in (other, odd):
        script.notify("agent>notes", "session/update", {"sessionId": "s", "update": update})
    end_turn(script, requests)

    spans = spans_of(script)

    assert spans["execute_tool Bash"].attributes["error.type"] == "tool_failed"
    assert spans["execute_tool other"].attributes["acp_conductor.tool.status"] == "unfinished"
    assert spans["invoke_agent agent"].attributes["acp_conductor.turn.tool_calls"] == 2


def test_an_error_is_the_status_of_its_span():
    script = TraceScript()
    requests = prompt(script)
    for request in reversed(requests):
        script.answer(request, {"code": -32603, "message": "secret"}, is_error=True)

    root = spans_of(script)["invoke_agent agent"]

    assert root.attributes["error.type"] == "-32603"
    assert root.status.description == "-32603"


def test_in_version_2_the_turn_ends_when_the_agent_is_idle():
    script = TraceScript()
    requests = prompt(script)
    for request in reversed(requests):
        script.answer(request, {})
    tool(script, "tool_call", kind="read")
    tool(script, "tool_call_update", status="completed")
    usage = {"inputTokens": 3, "outputTokens": 4}
    update = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    update["usage"] = usage
    for hop in ("agent>notes", "notes>client"):
        script.notify(hop, "session/update", {"sessionId": "s", "update": update})

    spans = spans_of(script)

    root = spans["invoke_agent agent"]
    assert root.end_time == time_after(script.ts / STEP)
    assert root.attributes["gen_ai.usage.output_tokens"] == 4
    assert root.attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert tree(spans)["execute_tool read"] == "session/prompt agent"


def test_a_turn_of_version_2_that_is_cancelled_before_its_work_begins_ends_by_an_idle_state():
    script = TraceScript()

    def state(name, **more):
        update = {"sessionUpdate": "state_update", "state": name, **more}
        script.notify("notes>client", "session/update", {"sessionId": "s", "update": update})

    state("running")
    state("idle")
    for request in reversed(prompt(script)):
        script.answer(request, {"messageId": "m"})
    script.notify("client>notes", "session/cancel", {"sessionId": "s"})
    state("idle", stopReason="cancelled")

    root = spans_of(script)["invoke_agent agent"]
    assert root.attributes["gen_ai.response.finish_reasons"] == ("cancelled",)


def test_a_span_of_the_agent_is_the_parent_of_its_request():
    script = TraceScript()
    requests = prompt(script)
    meta = {"traceparent": f"00-{TRACE:x}-{SPAN:x}-01"}
    params = {"sessionId": "s", "path": "/x", "_meta": meta}
    read = script.request("agent>notes", "fs/read_text_file", params)
    script.answer(read, {"content": ""})
    end_turn(script, requests)

    span = spans_of(script)["fs/read_text_file notes"]

    assert (span.context.trace_id, span.parent.span_id) == (TRACE, SPAN)


def test_a_request_without_a_turn_is_a_trace_of_its_own():
    script = TraceScript()
    outer = script.request("client>notes", "session/new", {"cwd": "/"})
    inner = script.request("notes>agent", "session/new", {"cwd": "/"})
    script.answer(inner, {"sessionId": "s"})
    script.answer(outer, {"sessionId": "s"})

    spans = spans_of(script)

    assert tree(spans) == {"session/new notes": None, "session/new agent": "session/new notes"}


def test_a_request_that_was_sent_again_to_an_inserted_component_ends_with_the_answer():
    script = TraceScript()
    outer = script.request("client>notes", "session/new", {"cwd": "/"})
    script.request("notes>agent", "session/new", {"cwd": "/"})
    script.answer(outer, {"sessionId": "s"})

    span = spans_of(script)["session/new agent"]

    assert (span.status.is_ok, span.attributes["acp_conductor.replaced"]) == (True, True)
    assert span.end_time == time_after(3)


def test_a_handler_is_the_place_of_the_span_even_if_it_ends_after_the_answer():
    script = TraceScript()
    requests = prompt(script)
    end_turn(script, requests)
    script.handler("notes", requests[0], handler="notes.py:7", waited=0.1, took=0.2)

    attributes = spans_of(script)["invoke_agent agent"].attributes

    assert (attributes["code.file.path"], attributes["code.line.number"]) == ("notes.py", 7)
    assert attributes["acp_conductor.handler.waited"] == 0.1


def test_a_log_event_of_a_handler_is_an_event_of_the_span():
    script = TraceScript()
    requests = prompt(script)
    script.log("info", "permission decided", component="notes", message=1, fields={"rule": "no"})
    end_turn(script, requests)

    (event,) = spans_of(script)["invoke_agent agent"].events

    assert event.name == "permission decided"
    assert event.attributes == {
        "rule": "no",
        "acp_conductor.component": "notes",
        "level": "info",
    }


@pytest.mark.parametrize(
    ("level", "event", "name"),
    [
        ("warning", "component restarted", "restart notes"),
        ("info", "component bypassed", "bypass notes"),
    ],
)
def test_a_failure_is_a_span_of_the_turn_that_it_interrupts(level, event, name):
    script = TraceScript()
    requests = prompt(script)
    script.log("error", "component failed", component="notes", fields={"error": "it exited"})
    script.log(level, event, component="notes")
    end_turn(script, requests)

    spans = spans_of(script)

    span = spans[name]
    assert tree(spans)[name] == "invoke_agent agent"
    assert (span.start_time, span.end_time) == (time_after(3), time_after(4))
    assert span.status.description == "it exited"


def test_what_has_not_ended_ends_with_its_chain():
    script = TraceScript()
    prompt(script)
    tool(script, "tool_call", kind="read")
    script.log("info", "chain ended")
    script.stderr("agent", "bye")

    spans = spans_of(script)

    assert set(spans) == {"execute_tool read", "invoke_agent agent", "session/prompt agent"}
    assert {each.end_time for each in spans.values()} == {time_after(script.ts / STEP - 1)}
    assert spans["invoke_agent agent"].attributes["error.type"] == "unanswered"


def test_content_is_only_in_spans_on_request():
    script = TraceScript()
    requests = prompt(script)
    tool(script, "tool_call", kind="read", title="the secret file", rawInput={"a": "secret"})
    tool(script, "tool_call_update", status="completed", rawOutput="secret")
    script.update("agent>notes", "secret ")
    script.update("notes>client", "secret ")
    script.update("notes>client", "answer")
    end_turn(script, requests)

    attributes = [each.attributes for each in spans_of(script).values()]
    assert "secret" not in repr(attributes)
    spans = spans_of(script, captures_content=True)
    root, call = spans["invoke_agent agent"], spans["execute_tool read"]
    assert json.loads(str(root.attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "the secret plan"}]}
    ]
    (answer,) = json.loads(str(root.attributes["gen_ai.output.messages"]))
    assert answer["parts"] == [{"type": "text", "content": "secret answer"}]
    assert answer["finish_reason"] == "end_turn"
    assert call.attributes["gen_ai.tool.call.arguments"] == '{"a":"secret"}'
    assert call.attributes["gen_ai.tool.call.result"] == "secret"


@pytest.mark.parametrize("params", [None, [], {"update": 7}])
def test_params_of_another_form_do_no_harm(params):
    script = TraceScript()
    requests = prompt(script)
    script.notify("agent>notes", "session/update", params, session="s")
    script.request("agent>notes", "fs/read_text_file", params, session="s")
    end_turn(script, requests, {"stopReason": 7, "usage": ["x"]})

    assert set(spans_of(script)) == {
        "invoke_agent agent",
        "session/prompt agent",
        "fs/read_text_file notes",
    }
