import pytest
from support.trace_records import TraceScript

from conductor.tracing.record_filter import RecordFilter
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    MessageRecord,
    StderrRecord,
    TraceHeader,
)

PROMPT = {"sessionId": "s", "prompt": [{"type": "text", "text": "Say Hello"}]}


def example():
    script = TraceScript()
    first = script.request("client>notes", "session/prompt", PROMPT)  # 1
    second = script.request("notes>agent", "session/prompt", PROMPT, cause=first)  # 2
    script.update("agent>notes", "hello", cause=second)  # 3
    script.log("info", "rule applied", component="notes", message=3)
    script.log("warning", "slow", component="agent")
    script.answer(second, {"code": -32603, "message": "broken"}, is_error=True)  # 4
    script.handler("notes", 1, method="session/prompt", took=0.5, outcome="failed")
    script.stderr("agent", "hello from stderr")
    script.request("client>notes", "session/new", {"cwd": "/w"})  # 5
    return script.records


def shown(chosen):
    names = {HandlerRecord: "handler", StderrRecord: "stderr", TraceHeader: "header"}
    return [
        each.n
        if isinstance(each, MessageRecord)
        else each.level
        if isinstance(each, LogRecord)
        else names[type(each)]
        for each in example()
        if chosen.accepts(each)
    ]


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({}, [1, 2, 3, "warning", 4, 5]),
        ({"everything": True}, [1, 2, 3, "info", "warning", 4, "handler", "stderr", 5]),
        ({"session": "s", "everything": True}, [1, 2, 3, "info", 4, "handler"]),
        ({"methods": ("session/n*", "agent_*")}, [3, 5]),
        ({"methods": ("session/prompt",), "everything": True}, [1, 2, 4, "handler"]),
        ({"component": "agent"}, [2, 3, "warning", 4]),
        ({"component": "Agent", "everything": True}, [2, 3, 4]),
        ({"sender": "client"}, [1, 5]),
        ({"receiver": "notes", "hop": 1}, [3, 4]),
        ({"min_time": 0.5, "everything": True}, [4, "handler"]),
        ({"errors": True}, [4, "handler"]),
        ({"text": "hello"}, [1, 2, 3]),
        ({"text": "HELLO", "everything": True}, [1, 2, 3, "stderr"]),
        ({"text": "-32603"}, [4]),
        ({"methods": ("session/prompt",), "errors": True, "component": "notes"}, [4, "handler"]),
        ({"chain": "other"}, []),
    ],
    ids=str,
)
def test_records_that_meet_all_criteria_pass(criteria, expected):
    header = [] if "chain" in criteria else ["header"]

    assert shown(RecordFilter(**criteria)) == header + expected
