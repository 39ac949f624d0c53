from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import timedelta

import pytest
import trio

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule

OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
READ = {
    "sessionUpdate": "tool_call",
    "toolCallId": "c1",
    "title": "Read notes",
    "kind": "read",
    "locations": [{"path": "/work/notes.txt"}],
}


def asking(agent, tool_call, answers, **members):
    """A step of a turn: ask, and keep the outcome."""

    async def ask(session):
        params = {"sessionId": session, "options": OPTIONS, "toolCall": tool_call, **members}
        answers.append(await agent.endpoint.request("session/request_permission", params))

    return ask


def selected(id):
    return {"outcome": {"outcome": "selected", "optionId": id}}


async def decide(chain, proxy, *steps, handlers=None, version=1, tool_call=None, members=None):
    """The response to the agent, and the requests to the client."""
    answers = []
    agent = FakeAgent()
    tool_call = tool_call or {"toolCallId": "c1"}
    agent.turns.append([*steps, asking(agent, tool_call, answers, **(members or {}))])
    async with chain(proxy, agent) as client:
        client.handlers.update(handlers or {})
        await client.initialize(version=version)
        session = await client.new_session("/work")
        await client.prompt_turn(session, "go")
        asked = client.transcript.of("session/request_permission", "request")
        await client.prompt(session, "/permissions")
        return answers[0], len(asked), client.transcript.text()


async def test_a_bare_request_matches_by_the_tool_call_that_was_announced(chain):
    proxy = Permissions([Rule("allow_once", kind=["read"], path=["notes.txt"])])

    answer, asked, _ = await decide(chain, proxy, READ)

    assert (answer, asked) == (selected("once"), 0)


async def test_requests_that_no_rule_decides_follow_the_default(chain):
    rules = [Rule("deny", kind=["delete"])]

    assert (await decide(chain, Permissions(rules), READ))[:2] == (selected("always"), 1)
    assert (await decide(chain, Permissions(rules, default="deny"), READ))[0] == selected("no")


async def test_without_rules_the_user_is_asked_everything_and_sees_the_answers(chain):
    assert await decide(chain, Permissions(), READ) == (
        selected("always"),
        1,
        "- Read notes: default → ask, always",
    )
    assert [option for option, _ in Permissions().option_warnings()] == ["rules"]
    assert not Permissions(default="deny").option_warnings()


async def test_a_dry_run_asks_the_user_and_reports_the_decision(chain):
    proxy = Permissions([Rule("deny", name="no reading")], dry_run=True)

    answer, asked, told = await decide(chain, proxy, READ)

    assert (answer, asked) == (selected("always"), 1)
    assert told == "- Read notes: no reading → deny (dry run), always"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule("deny", name="no reading"), "denied by rule no reading: Read notes"),
        (
            Rule("deny", kind=["read", "search"], title="^Read"),
            "denied by rule 1 (kind: read, search; title: ^Read): Read notes",
        ),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_the_chat_says_once_per_call_which_rule_has_denied_it(chain, rule, text, version):
    """Agents say "User refused"."""
    answers, agent = [], FakeAgent()
    ask = {"toolCallId": "c1"}
    subject = {"title": "t", "subject": {"type": "tool_call", "toolCall": ask}}
    about = subject if version == 2 else {}
    agent.turns.append([READ, *[asking(agent, ask, answers, **about)] * 2])
    async with chain(Permissions([rule]), agent) as client:
        await client.initialize(version=version, capabilities={"session": {"notices": {}}})
        await client.prompt_turn(await client.new_session("/work"), "go")
        notices = [u for u in client.transcript.updates() if u["sessionUpdate"] == "notice"]

    assert answers == [selected("no")] * 2
    assert notices == [{"sessionUpdate": "notice", "severity": "warning", "title": text}]


async def test_a_request_not_answered_in_time_is_denied_and_cancelled(chain, virtual_clock):
    async def never(params):
        withdrawn.append(params["toolCall"])
        try:
            await trio.sleep_forever()
        finally:
            withdrawn.append("withdrawn")

    withdrawn = []
    proxy = Permissions([], timeout=timedelta(minutes=2))

    before = trio.current_time()
    answer, _, told = await decide(
        chain, proxy, READ, handlers={"session/request_permission": never}
    )

    assert answer == selected("no")
    assert "\n\n[denied, no answer within 0:02:00: Read notes]\n\n" in told
    assert withdrawn == [{"toolCallId": "c1"}, "withdrawn"]
    assert trio.current_time() - before == pytest.approx(120)


async def test_an_audit_file_that_cannot_be_written_is_found_at_the_start(chain, tmp_path):
    file = tmp_path / "none" / "audit.jsonl"

    async with chain(Permissions([Rule("deny")], audit=file), FakeAgent()) as client:
        with pytest.raises(RequestError, match=r"audit file .*none/audit.jsonl cannot be written"):
            await client.initialize()


@pytest.mark.parametrize("kind", ["directory", "named pipe", "symbolic link"])
async def test_a_decision_that_cannot_be_recorded_is_denied_with_the_reason(chain, tmp_path, kind):
    """An agent may have replaced the file; nothing waits for the reader of a pipe."""
    file, startup = tmp_path / "audit.jsonl", tmp_path / ".bashrc"
    startup.write_text("alias ll=ls\n")
    refused = []
    put = {
        "directory": file.mkdir,
        "named pipe": lambda: os.mkfifo(file),
        "symbolic link": lambda: file.symlink_to(startup),
    }

    async def ask(session):
        file.unlink()
        put[kind]()
        params = {"sessionId": session, "options": OPTIONS, "toolCall": {"toolCallId": "c1"}}
        with pytest.raises(RequestError) as error:
            await agent.endpoint.request("session/request_permission", params)
        refused.append(error.value.message)

    agent = FakeAgent(turns=[[ask]])
    async with chain(Permissions([Rule("allow_once")], audit=file), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    (message,) = refused
    reason = f"it is a {kind}, not a regular file"
    assert message == f"permissions: the audit file {file} cannot be written: {reason}"
    assert startup.read_text() == "alias ll=ls\n"


async def test_every_decision_is_a_line_in_the_audit_file(chain, tmp_path):
    file = tmp_path / "audit.jsonl"
    await decide(chain, Permissions([Rule("deny")], audit=file), READ)
    await decide(chain, Permissions([Rule("allow_once", path=["src"])], audit=file), READ)

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.pop("time") > 0 for line in lines] == [True, True]
    common = {"session": "session-1", "tool_call": "c1", "kind": "read", "dry_run": False}
    common |= {"about": "tool", "title": "Read notes", "tool": None, "command": None}
    common |= {"paths": ["/work/notes.txt"]}
    assert lines == [
        {**common, "rule": "rule 1", "action": "deny", "outcome": "no", "not_decided_by": []},
        {
            **common,
            "rule": "default",
            "action": "ask",
            "outcome": "always",
            "not_decided_by": ["rule 1: the path `/work/notes.txt` is not covered"],
        },
    ]
    assert file.stat().st_mode & 0o777 == 0o600


async def test_version_2_asks_about_a_subject_or_about_nothing_in_particular(chain):
    call = {**READ, "sessionUpdate": "tool_call_update"}
    subject = {"type": "tool_call", "toolCall": {"toolCallId": "c1"}}
    members = {"title": "May I?", "subject": subject, "toolCall": None}
    rules = [Rule("allow_once", kind=["read"]), Rule("deny", title="May I")]

    told = await decide(chain, Permissions(rules), call, version=2, members=members)
    bare = await decide(chain, Permissions(rules), version=2, members={**members, "subject": None})

    assert (told[0], bare[0]) == (selected("once"), selected("no"))


async def test_an_id_that_is_used_again_is_another_tool_call(chain):
    first = {**READ, "_meta": {"claudeCode": {"toolName": "mcp__docs__search"}}}
    again = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "x", "kind": "other"}
    about = {"protocolVersion": 1, "agentInfo": {"name": "claude-agent-acp", "version": "1"}}
    fake, answers = FakeAgent(handlers={"initialize": lambda params: about}), []
    fake.turns.append([first, again, asking(fake, {"toolCallId": "c1"}, answers)])
    rule = Rule("allow_once", mcp_tool=["docs/*"])
    async with chain(Permissions([rule], default="deny"), fake) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    assert answers == [selected("no")]


async def test_a_title_cannot_look_like_another_decision(chain):
    title = "x\n- y: rule 1 → allow_once, once"
    _, _, told = await decide(chain, Permissions([Rule("deny")]), {**READ, "title": title})

    assert told == (
        "\n\n[denied by rule 1: x - y: rule 1 → allow_once, once]\n\n"
        "- x - y: rule 1 → allow_once, once: rule 1 → deny, no"
    )


async def test_the_user_is_told_why_a_rule_did_not_decide(chain):
    rule = Rule("allow_once", name="sources", kind=["read"], path=["src/**"])
    _, _, told = await decide(chain, Permissions([rule], default="deny"), READ)

    assert told == (
        "\n\n[denied by the default: Read notes]\n\n"
        "- Read notes: default → deny, no\n  - sources: the path `/work/notes.txt` is not covered"
    )


@pytest.mark.parametrize(
    ("method", "fails", "allowed"),
    [
        ("session/load", True, "/work"),
        ("session/resume", True, "/work"),
        ("session/fork", False, "/work"),
        ("session/load", False, "/other"),
    ],
)
async def test_only_a_request_that_opened_the_session_sets_its_directory(
    chain, method, fails, allowed
):
    """A fork has its own directory; the session that it was made of keeps its."""
    answers = []
    agent = FakeAgent()

    def reopen(params):
        if fails:
            raise RequestError(-32002, "no such session")
        return {"sessionId": "forked"} if method == "session/fork" else {}

    agent.handlers[method] = reopen
    call = {"toolCallId": "c1", "kind": "read", "rawInput": {"path": "a.txt"}}
    agent.turns.append([asking(agent, call, answers)])
    proxy = Permissions([Rule("allow_once", kind=["read"], path=[f"{allowed}/**"])])
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        params = {"sessionId": session, "cwd": "/other", "mcpServers": []}
        with suppress(RequestError):
            await client.request(method, params)
        await client.prompt_turn(session, "go")
        asked = client.transcript.of("session/request_permission", "request")

    assert (answers, asked) == ([selected("once")], [])


async def test_a_session_may_ask_for_permission_before_its_load_is_answered(chain):
    answers = []
    agent = FakeAgent()
    call = {"toolCallId": "c1", "kind": "read", "rawInput": {"path": "a.txt"}}

    async def load(params):
        await asking(agent, call, answers)("old")
        return {}

    agent.handlers["session/load"] = load
    proxy = Permissions([Rule("allow_once", kind=["read"], path=["/work/**"])])
    async with chain(proxy, agent) as client:
        await client.initialize()
        params = {"sessionId": "old", "cwd": "/work", "mcpServers": []}
        await client.request("session/load", params)

    assert answers == [selected("once")]


async def asked_in(chain, proxy, child, told, *, version=1, cwd=None):
    """The answer to a request of a subagent; `cwd` is its directory, if the agent tells one."""
    answers = []
    agent = FakeAgent()

    async def work(session):
        if child is not None:
            update = {"sessionUpdate": "subagent_update", "sessionId": child}
            agent.update(session, update if cwd is None else {**update, "cwd": cwd})
        params = {"sessionId": child or "unknown", "options": OPTIONS, **told}
        answers.append(await agent.endpoint.request("session/request_permission", params))

    agent.turns = [[work]]
    async with chain(proxy, agent) as client:
        await client.initialize(version=version)
        await client.prompt_turn(await client.new_session("/work"), "go")
    return answers[0]


def reads(path):
    return {"toolCall": {"toolCallId": "1", "kind": "read", "rawInput": {"path": path}}}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("child", ["child", None])
async def test_paths_of_the_session_count_for_its_subagents(chain, child, version):
    """Also for a session that the agent has not announced."""
    rules = [Rule("deny", path=["secrets/**"]), Rule("allow_once", kind=["read"], path=["/work"])]

    async def answer(path, version=version, cwd=None):
        return await asked_in(
            chain, Permissions(rules), child, reads(path), version=version, cwd=cwd
        )

    assert await answer("/work/secrets/key") == selected("no")
    assert await answer("secrets/key") == selected("no")
    assert await answer("/work/notes") == selected("once")


async def test_a_subagent_may_work_in_another_directory(chain):
    rules = [Rule("deny", path=["secrets/**"]), Rule("allow_once", kind=["read"], path=["**"])]

    async def answer(path, cwd):
        return await asked_in(chain, Permissions(rules), "child", reads(path), cwd=cwd)

    assert await answer("key", "/work/secrets") == selected("no")
    assert await answer("secrets/key", "/elsewhere") == selected("no")
    assert await answer("key", "/elsewhere") == selected("always")  # of the user
    assert await answer("key", "/work/part") == selected("once")


async def test_a_rule_for_a_session_is_for_its_subagents(chain):
    rules = [Rule("deny", session=["session-*"])]
    assert await asked_in(chain, Permissions(rules), "child", reads("a")) == selected("no")


@pytest.mark.parametrize(
    ("command", "cwd", "answer"),
    [
        ("rm -r x", "/work", "no"),
        ("git status", "/work", "once"),
        ("git status", "/", "always"),
        ("git status; ls", "/work", "always"),
    ],
)
async def test_version_2_asks_about_a_command_by_itself(chain, command, cwd, answer):
    rules = [Rule("deny", command="^rm "), Rule("allow_once", argv=["git status"])]
    subject = {"type": "command", "command": command, "cwd": cwd}
    members = {"title": "May I?", "subject": subject, "toolCall": None}

    told, _, shown = await decide(chain, Permissions(rules), version=2, members=members)

    assert told == selected(answer)
    assert "- May I?" in shown


@pytest.mark.parametrize(("length", "answer"), [(65_536, "once"), (65_537, "always")])
async def test_a_command_too_long_to_be_checked_is_not_allowed(chain, length, answer):
    """The user is asked, and selects the first option."""
    rules = [Rule("allow_once", command="echo x*")]
    raw = {"command": "echo ".ljust(length, "x")}
    call = {"toolCallId": "c1", "kind": "execute", "title": "echo", "rawInput": raw}

    told, asked, _ = await decide(chain, Permissions(rules), tool_call=call)

    assert (told, asked) == (selected(answer), 1 if answer == "always" else 0)


async def test_a_command_is_merged_with_the_tool_call_that_it_belongs_to(chain):
    given = {"command": "git status", "env": {"GIT_PAGER": "sh"}}
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "rawInput": given}
    subject = {"type": "command", "command": "git status", "cwd": "/work", "toolCallId": "c1"}
    members = {"title": "May I?", "subject": subject, "toolCall": None}
    rules = [Rule("allow_once", argv=["git status"])]

    told, _, _ = await decide(chain, Permissions(rules), call, version=2, members=members)

    assert told == selected("always")


async def test_no_command_is_allowed_where_the_directory_is_not_known(chain):
    told = {"toolCall": {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "ls"}}}
    proxy = Permissions([Rule("allow_once", argv=["ls"])])
    assert await asked_in(chain, proxy, None, told) == selected("always")
    assert await asked_in(chain, proxy, "child", told) == selected("once")


async def test_the_user_sees_what_was_decided_about_a_subagent(chain):
    agent = FakeAgent()

    async def work(session):
        agent.update(session, {"sessionUpdate": "subagent_update", "sessionId": "child"})
        await agent.ask("child", {"toolCallId": "1", "title": "Read it"})

    agent.turns = [[work]]
    async with chain(Permissions([Rule("deny")]), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")
        await client.prompt(session, "/permissions")
        denied, *_, listed = client.transcript.text(session).strip().splitlines()
    assert denied == "[denied by rule 1: Read it]"
    assert listed.startswith("- Read it: rule 1 → deny, ")


@pytest.mark.parametrize("version", [1, 2])
async def test_a_rule_for_a_session_that_denies_or_asks_is_for_unannounced_sessions_too(
    chain, version
):
    """They may be of a subagent of that session."""

    async def answer(*rules, child=None):
        proxy = Permissions([*rules], default="allow_once")
        return await asked_in(chain, proxy, child, reads("a"), version=version)

    allows = Rule("allow_once", session=["*"])
    assert await answer(Rule("deny", session=["other"])) == selected("no")
    assert await answer(Rule("ask", session=["other"])) == selected("always")  # of the user
    assert await answer(Rule("ask", session=["other"]), Rule("deny")) == selected("no")
    assert await answer(allows, Rule("ask")) == selected("always")
    assert await answer(allows, Rule("ask"), child="child") == selected("once")
    assert await answer(Rule("deny", session=["other"]), child="child") == selected("once")


async def test_a_subagent_of_an_unannounced_session_is_unannounced_too(chain):
    answers = []
    agent = FakeAgent()

    async def work(session):
        agent.update("unknown", {"sessionUpdate": "subagent_update", "sessionId": "child"})
        params = {"sessionId": "child", "options": OPTIONS, **reads("a")}
        answers.append(await agent.endpoint.request("session/request_permission", params))

    agent.turns = [[work]]
    proxy = Permissions([Rule("deny", session=["session-*"])], default="allow_once")
    async with chain(proxy, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    assert answers == [selected("no")]


@pytest.mark.parametrize(("name", "is_told"), [("OpenCode", True), ("fake", False)])
async def test_the_user_sees_what_the_agent_does_without_asking(chain, name, is_told):
    answer = {"protocolVersion": 1, "agentInfo": {"name": name, "version": "1"}}
    agent = FakeAgent({"initialize": lambda params: answer})
    async with chain(Permissions([Rule("deny")]), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "/permissions")

        told = client.transcript.text(session)
        assert ("does not ask before it reads a file, writes a file or runs a" in told) is is_told
        assert ('`"permission": {"read": "ask", "edit": "ask"' in told) is is_told


def options_of(*options):
    return [
        {"optionId": f"o{number}", "name": name, "kind": kind}
        for number, (name, kind) in enumerate(options)
    ]


ALLOW, DENY = ("Allow", "allow_once"), ("Deny", "reject_once")
OTHER = {"toolCallId": "1", "kind": "other", "title": "Which colour?"}
PAGE = {**OTHER, "title": "Open https://login.example.org/a?b to log in"}
QUESTIONS = {
    "one answer each, as pi asks": (OTHER, options_of(*[(name, ALLOW[1]) for name in "abc"])),
    "answers, or none": (OTHER, options_of(("Red", ALLOW[1]), ("Blue", ALLOW[1]), DENY)),
    "a mode beside Allow, as devin asks": (
        {**OTHER, "title": "Run a tool"},
        options_of(("Switch to smart mode", ALLOW[1]), ALLOW, DENY),
    ),
    "another mode": (OTHER, options_of(("Yes, and use auto mode", ALLOW[1]), DENY)),
    "more than once": (OTHER, options_of(("Allow for this session", ALLOW[1]), DENY)),
    "nothing rejects": (OTHER, options_of(ALLOW)),
    "a page": (PAGE, options_of(("Opened", ALLOW[1]), ("Decline", DENY[1]))),
    "a plan": ({**OTHER, "rawInput": {"plan": "1. a"}}, options_of(("Go", ALLOW[1]), DENY)),
    "pi's confirmation": (OTHER | {"toolCallId": "pi-ui-7"}, options_of(ALLOW, DENY)),
    "an elicitation": (OTHER | {"toolCallId": "conductor-question-1"}, options_of(ALLOW, DENY)),
    "a question of Cursor": (OTHER | {"toolCallId": "conductor-cursor-1"}, options_of(ALLOW, DENY)),
}


async def answered(chain, proxy, call, options, version=1):
    """What the agent is answered by the proxy; the user would choose "user"."""
    if version == 2:
        members = {"title": call["title"], "subject": {"type": "tool_call", "toolCall": call}}
    else:
        members = {"toolCall": call}
    agent, answers = FakeAgent(name="pi-acp"), []
    if version == 1:
        info = {"protocolVersion": 1, "agentInfo": {"name": "pi-acp", "version": "0.0.34"}}
        agent.handlers["initialize"] = lambda params: info
    agent.turns.append([asking(agent, None, answers, options=options, **members)])
    async with chain(proxy, agent) as client:
        client.handlers["session/request_permission"] = lambda params: selected("user")
        await client.initialize(version=version)
        session = await client.new_session("/work")
        await client.prompt_turn(session, "go")
        await client.prompt(session, "/permissions")
        return answers[0], client.transcript.text()


@pytest.mark.parametrize(("action", "version"), [("allow_once", 1), ("allow_always", 2)])
@pytest.mark.parametrize("name", QUESTIONS)
async def test_what_only_the_user_can_answer_is_asked(chain, name, action, version):
    call, options = QUESTIONS[name]

    answer, told = await answered(
        chain, Permissions([Rule(action, kind=["other"])]), call, options, version
    )

    assert answer == selected("user")
    assert "default → ask, user\n  - rule 1: " in told or "rule 1 → ask, user" in told


async def test_a_rule_that_denies_holds_for_a_request_of_any_shape(chain):
    """A further option does not turn a denied call into a question."""
    call = {**OTHER, "kind": "read", "rawInput": {"path": "/work/.env"}}
    rule = Rule("deny", path=["**/.env"])

    answer, _ = await answered(chain, Permissions([rule]), call, options_of(ALLOW, ALLOW, DENY))

    assert answer == selected("o2")


async def test_a_rule_that_names_questions_does_not_choose_between_answers(chain):
    rule = Rule("allow_once", about=["tool", "question"], kind=["other"])
    call, options = QUESTIONS["answers, or none"]

    answer, told = await answered(chain, Permissions([rule]), call, options)

    assert answer == selected("user")
    assert "rule 1 → ask, user\n  - rule 1: the options are answers" in told
