"""What is known of a session after its messages: set-up, settings, title, tool calls."""

from __future__ import annotations

import pytest

from conductor.acp.sessions import SessionFacts, ToolCallTable, UsageDelta, UsageMeter

SET_UP = {
    "sessionId": "s",
    "cwd": "/a",
    "additionalDirectories": ["/b", 1],
    "mcpServers": [{"name": "m"}, 1],
}


@pytest.mark.parametrize(
    ("method", "opened_by", "forked_from", "parent"),
    [
        ("session/new", "new", None, None),
        ("session/load", "load", None, "p"),
        ("session/resume", "resume", None, "p"),
        ("session/fork", "fork", "s", None),
    ],
)
def test_the_last_set_up_replaces_what_the_one_before_has_told(
    method, opened_by, forked_from, parent
):
    facts = SessionFacts("t", parent="p")
    for params in (SET_UP | {"cwd": "/z"}, SET_UP):
        facts.set_up(method, params)

    assert (facts.opened_by, facts.forked_from, facts.parent) == (opened_by, forked_from, parent)
    assert (facts.cwd, facts.additional_directories) == ("/a", ["/b"])
    assert facts.mcp_servers == [{"name": "m"}]

    facts.set_up(method, {"sessionId": "s"})
    assert (facts.cwd, facts.additional_directories, facts.mcp_servers) == ("", [], [])


ASK_OR_PLAN = [{"value": "ask"}, {"value": "plan"}]
MODE = {"id": "m", "category": "mode", "currentValue": "ask", "options": ASK_OR_PLAN}
PLAN = {**MODE, "currentValue": "plan"}
OTHER = {"id": "o", "currentValue": True}


@pytest.mark.parametrize(
    ("told", "mode", "options"),
    [
        ({"modes": {"currentModeId": "plan"}}, "plan", []),
        ({"configOptions": [MODE, OTHER, 1]}, "ask", [MODE, OTHER]),
        ({"modes": {"currentModeId": "x"}, "configOptions": [MODE]}, "ask", [MODE]),
        ({"modes": None, "configOptions": None}, None, []),
    ],
)
def test_the_answer_that_opens_a_session_tells_mode_and_options(told, mode, options):
    facts = SessionFacts("s")
    facts.answered(told)
    facts.answered({})  # says nothing: nothing changes

    assert (facts.mode, facts.config_options) == (mode, options)


@pytest.mark.parametrize(
    ("update", "changed"),
    [
        # Version 1 only.
        ({"sessionUpdate": "current_mode_update", "currentModeId": "plan"}, ("plan", [PLAN], "t")),
        ({"sessionUpdate": "current_mode_update", "currentModeId": "x"}, ("x", [MODE], "t")),
        ({"sessionUpdate": "current_mode_update"}, ("ask", [MODE], "t")),
        # Both versions: replaced as a whole.
        (
            {"sessionUpdate": "config_option_update", "configOptions": [PLAN, OTHER]},
            ("plan", [PLAN, OTHER], "t"),
        ),
        ({"sessionUpdate": "config_option_update", "configOptions": []}, ("ask", [], "t")),
        # Both versions: members that are absent stay, null clears.
        ({"sessionUpdate": "session_info_update", "title": "u"}, ("ask", [MODE], "u")),
        ({"sessionUpdate": "session_info_update", "title": None}, ("ask", [MODE], None)),
        ({"sessionUpdate": "session_info_update", "updatedAt": "x"}, ("ask", [MODE], "t")),
        ({"sessionUpdate": "session_info_update", "title": 1}, ("ask", [MODE], "t")),
        ({"sessionUpdate": "plan", "entries": []}, ("ask", [MODE], "t")),
    ],
)
def test_an_update_changes_what_it_tells(update, changed):
    facts = SessionFacts("s", title="t", mode="ask", config_options=[MODE])
    facts.update(update)

    assert (facts.mode, facts.config_options, facts.title) == changed


CALL = {
    "title": "Build",
    "kind": "execute",
    "rawInput": {"command": "make"},
    "content": [{"type": "content"}],
    "_meta": {"a": 1, "b": 2},
}
NULLS = dict.fromkeys((*CALL, "status"))


@pytest.mark.parametrize(
    ("version", "update", "changed"),
    [
        # Upserted: a value replaces, also a list; an absent member stays.
        (1, {"title": "Test", "content": []}, {"title": "Test", "content": []}),
        (2, {"title": "Test", "content": []}, {"title": "Test", "content": []}),
        # Null leaves what is known in version 1, and clears it in version 2.
        (1, NULLS, {}),
        (2, NULLS, NULLS),
        # `_meta` is replaced in version 1, and merged by its keys in version 2.
        (1, {"_meta": {"a": None, "c": 3}}, {"_meta": {"a": None, "c": 3}}),
        (2, {"_meta": {"a": None, "c": 3}}, {"_meta": {"b": 2, "c": 3}}),
        # Appended (version 2).
        (
            2,
            {"sessionUpdate": "tool_call_content_chunk", "content": {"type": "terminal"}},
            {"content": [{"type": "content"}, {"type": "terminal"}]},
        ),
    ],
)
def test_an_update_of_a_tool_call_is_merged_into_it(version, update, changed):
    table = ToolCallTable(version)
    told = {"toolCallId": "c", "status": "in_progress"} | CALL
    first = {1: "tool_call", 2: "tool_call_update"}[version]
    table.update({"sessionUpdate": first, **told})
    call, *_ = table.update({"sessionUpdate": "tool_call_update", "toolCallId": "c", **update})

    expected = {name: each for name, each in (told | changed).items() if each is not None}
    assert call.members == expected
    if changed is NULLS:
        assert (call.title, call.kind, call.status) == ("", "other", "pending")
        assert (call.raw_input, call.content) == (None, [])


@pytest.mark.parametrize(("version", "title"), [(1, "Build"), (2, "")])
def test_a_permission_request_is_merged_into_its_tool_call_and_leaves_the_announced_one(
    version, title
):
    table = ToolCallTable(version)
    table.update({"sessionUpdate": "tool_call_update", "toolCallId": "c", **CALL})
    asked = table.update_asked({"toolCallId": "c", "title": None, "kind": "edit"})

    assert (asked.title, asked.kind, asked.raw_input) == (title, "edit", CALL["rawInput"])
    assert table.open["c"].members == {"toolCallId": "c", **CALL}
    table.update({"sessionUpdate": "tool_call_update", "toolCallId": "c", "rawInput": "x"})
    assert (asked.raw_input, table.open["c"].raw_input) == ("x", "x")


def updated(table, form="tool_call_update", **members):
    """The title and the status of the call, whether it starts, and whether it ends."""
    call, starts, ends = table.update({"sessionUpdate": form, "toolCallId": "c", **members})
    table.forget_ended(call)
    return call.title, call.status, starts, ends


def test_an_unfinished_call_ends_with_its_turn_and_is_kept_for_later_updates():
    table = ToolCallTable()
    assert updated(table, "tool_call", title="Build") == ("Build", "pending", True, False)

    assert [(each.title, each.status) for each in table.turn_ended("failed")] == [
        ("Build", "failed")
    ]

    assert [(id, each.status) for id, each in table.open.items()] == [("c", "pending")]
    assert updated(table, status="in_progress") == ("Build", "in_progress", False, False)
    assert updated(table, status="completed") == ("Build", "completed", False, False)
    assert table.open == {}


def test_after_the_end_of_a_turn_the_id_of_an_unfinished_call_may_be_that_of_another():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build", rawInput={"command": "make"})

    table.turn_ended("failed")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", True, False)
    assert table.open["c"].raw_input is None
    assert updated(table, status="completed") == ("Test", "completed", False, True)


def test_within_a_turn_a_call_that_is_announced_again_does_not_start_again():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", False, False)


def test_a_call_that_goes_on_in_the_next_turn_is_one_of_that_turn():
    table = ToolCallTable()
    updated(table, "tool_call", title="Build")
    table.turn_ended("failed")
    assert table.turn_ended("failed") == []
    updated(table, status="in_progress")

    assert updated(table, "tool_call", title="Test") == ("Test", "pending", False, False)
    assert [each.title for each in table.turn_ended("failed")] == ["Test"]


EXECUTE = {"kind": "execute", "title": "x"}
RUNS = {"command": "make", "description": "Build it"}


@pytest.mark.parametrize(
    ("updates", "start"),
    [
        # Claude 0.101: the input grows member by member; no status says that the call runs.
        ([{"rawInput": {}, "status": "pending", **EXECUTE}, {"rawInput": RUNS}], 1),
        (
            [
                {"rawInput": {}, "status": "pending", **EXECUTE},
                {"rawInput": {"description": "Build it"}},
                {"rawInput": RUNS},
            ],
            2,
        ),
        # Claude: of a file that is written, the path comes first, the diff last.
        (
            [
                {"rawInput": {}, "status": "pending", "kind": "edit"},
                {"rawInput": {"file_path": "/a"}},
                {"rawInput": {"file_path": "/a"}, "content": [{"type": "diff", "path": "/a"}]},
            ],
            2,
        ),
        # Claude: a tool without arguments.
        ([{"rawInput": {}, "status": "pending"}, {"rawInput": {}, "title": "docs/list"}], 1),
        # opencode 1.18: the directory of the command comes before the command.
        (
            [
                {"rawInput": {"cwd": "/work"}, "status": "pending", **EXECUTE},
                {"rawInput": {"cwd": "/work", **RUNS}, "status": "in_progress"},
            ],
            1,
        ),
        # pi 0.0.34: the text of the command grows letter by letter.
        (
            [
                {"rawInput": {}, "status": "pending", **EXECUTE},
                {"rawInput": {"command": "r"}, "status": "pending"},
                {"rawInput": {"command": "rm x"}, "status": "in_progress"},
            ],
            2,
        ),
        # fast-agent 0.10: the arguments come when it runs.
        ([{"status": "pending"}, {"status": "in_progress", "rawInput": {"path": "/a"}}], 1),
        # goose, vibe: all at once.
        ([{"rawInput": RUNS, "status": "pending", **EXECUTE}, {"status": "completed"}], 0),
        # An agent that says nothing of the input, nor that the call is pending.
        ([{"title": "Read a", "kind": "read"}, {"status": "completed"}], 0),
        # The input never comes.
        ([{"rawInput": {}, "status": "pending"}, {"status": "completed"}], 1),
    ],
)
def test_a_call_starts_once_when_its_input_is_known_or_it_runs(updates, start):
    table = ToolCallTable()
    forms = ["tool_call", *["tool_call_update"] * (len(updates) - 1)]

    starts = [updated(table, form, **each)[2] for form, each in zip(forms, updates, strict=True)]

    assert starts == [place == start for place in range(len(updates))]


def test_the_newest_calls_that_an_agent_never_finishes_are_kept():
    table = ToolCallTable()
    for number in range(1001):
        table.update({"sessionUpdate": "tool_call", "toolCallId": str(number)})
        table.update_asked({"toolCallId": str(number)})

    assert [(len(each), "0" in each, "1" in each) for each in (table.open, table.asked)] == [
        (1000, False, True),
        (1000, False, True),
    ]


def cost(amount, currency="USD"):
    cost = {"amount": amount, "currency": currency}
    return {"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": cost}


def usage(**counts):
    return {"totalTokens": sum(counts.values()), **counts}


def test_the_tokens_of_a_session_replace_each_other():
    meter = UsageMeter("session")

    assert meter.turn(usage(inputTokens=3)) == UsageDelta(turns=1, tokens=3)
    assert meter.turn(usage(inputTokens=8)) == UsageDelta(turns=1, tokens=5)
    assert meter.turn(usage(inputTokens=1)) == UsageDelta(turns=1)
    assert meter.tokens == {"inputTokens": 1, "totalTokens": 1}


def test_earlier_tokens_of_a_loaded_session_are_not_counted():
    meter = UsageMeter("session", restored=True)

    assert meter.turn(usage(inputTokens=9)) == UsageDelta(turns=1)
    assert meter.turn(usage(inputTokens=10)) == UsageDelta(turns=1, tokens=1)


def test_cost_is_cumulative_per_session():
    meter = UsageMeter()

    assert meter.update(cost(1.5)) == UsageDelta(cost={"USD": 1.5})
    assert meter.update(cost(2.0)) == UsageDelta(cost={"USD": 0.5})
    assert meter.update(cost(1, "EUR")) == UsageDelta(cost={"EUR": 1.0})
    assert meter.update({**cost(0), "cost": None}) == UsageDelta()
    assert (meter.cost, meter.used, meter.size) == ({"USD": 2.0, "EUR": 1.0}, 10, 100)


@pytest.mark.parametrize("odd", [{"amount": "1"}, "1", 3])
def test_a_cost_that_is_none_is_ignored(odd):
    assert UsageMeter().update({"sessionUpdate": "usage_update", "cost": odd}) == UsageDelta()
