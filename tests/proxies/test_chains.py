"""Each example chain does what its first lines promise; without its proxies it would not."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from conductor import log
from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.plugins.loading import entry_points
from conductor.proxy import RequestError
from conductor.testing import FakeAgent, FakeClient, open_chain

CHAINS = Path(__file__).parents[2] / "chains"
ENDED = {"stopReason": "end_turn"}
NEW = {"cwd": "/work", "mcpServers": []}

WITHOUT_EXAMPLE = {"sandbox_guard"}
"""The conductor places it, before an agent's `sandbox`."""

WITHOUT_PROMISE = {"registry", "remote", "sandbox"}
"""They need an installed agent, a server or bubblewrap, and are about the agent, not a proxy."""


ONE_PROXY = {
    *("boolean_options", "cursor_questions", "elicitation", "notices", "plan_approval"),
    *("prompt_content", "subagents", "turn_updates", "v1_v2"),
}
"""They have one proxy without options: what it does is tested with it."""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """What proxies keep, and `~` in the files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def example(name, *agent):
    return open_chain(CHAINS / f"{name}.yaml", *agent)


async def opened(client, cwd="/work", capabilities=None, **params):
    await client.initialize(capabilities=capabilities)
    return await client.new_session(str(cwd), **params)


def prompts(agent):
    """The texts of each prompt that the agent gets."""
    found = agent.transcript.of("session/prompt", "request")
    return [[block["text"] for block in each.params["prompt"]] for each in found]


def announced(agent):
    return agent.transcript.of("initialize", "request")[0].params["clientCapabilities"]


def refusing(reason, is_refused):
    """An agent that refuses some params of a session, or of a prompt."""

    def refuse(params):
        if is_refused(params):
            raise RequestError(-32602, reason)
        return {"sessionId": "s", **ENDED}

    return FakeAgent(handlers={"session/new": refuse, "session/prompt": refuse})


async def test_additional_directories_reach_an_agent_that_knows_only_one():
    agent = refusing("Unrecognized key", lambda params: "additionalDirectories" in params)
    async with example("additional_directories", agent) as client:
        await client.initialize()
        await client.request("session/new", {**NEW, "additionalDirectories": ["/lib"]})
        await client.prompt("s", "hi")
    (texts,) = prompts(agent)
    assert texts[-1] == "hi"
    assert "/lib" in texts[0]


async def test_brief_adds_its_text_to_the_first_prompt():
    agent = FakeAgent()
    async with example("brief", agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "hi")

    ((added, text),) = prompts(agent)
    assert "Answer in one sentence." in added
    assert text == "hi"


async def test_budget_ends_with_its_turns_and_with_its_cost():
    cost = {"amount": 5.0, "currency": "USD"}
    spent = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost}
    agent = FakeAgent(turns=[["hi"] for _ in range(50)] + [[spent, {"stopReason": "cancelled"}]])
    async with example("budget", agent) as client:
        one = await opened(client)
        two = await client.new_session("/work")
        assert [await client.prompt(one, "hi") for _ in range(50)] == [ENDED] * 50
        assert (await client.prompt(one, "hi"))["stopReason"] == "refusal"
        await client.prompt(two, "hi")
        assert (await client.prompt(two, "hi"))["stopReason"] == "refusal"
    assert "(50 of 50 turns used in this session)" in client.transcript.text(one)
    assert "5 of 5 USD used in this session" in client.transcript.text(two)


async def test_checkpoint_restores_what_the_agent_has_changed(project):
    agent = FakeAgent()

    async def change(session):
        await agent.ask(session, {"toolCallId": "1"})
        (project / "a.txt").write_text("two")

    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Edit", "kind": "edit"}
    agent.turns.append([call, change])
    async with example("checkpoint", agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "change it")
        assert (project / "a.txt").read_text() == "two"
        await client.prompt(session, "/rewind")
        await client.prompt(session, "/rewind 1")
    assert "change it" in client.transcript.text()
    assert (project / "a.txt").read_text() == "one"


async def test_context_adds_rules_and_state_of_the_work_tree_to_the_first_prompt(project):
    (project / "AGENTS.md").write_text("Test first.")
    await trio.run_process(["git", "init", "-q", "-b", "trunk"], cwd=project)
    agent = FakeAgent()
    async with example("context", agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "one")
        await client.prompt(session, "two")
    first, second = prompts(agent)
    told = "".join(first[:-1])
    assert all(text in told for text in ("Answer briefly.", "Test first.", "trunk", "?? a.txt"))
    assert (first[-1], second) == ("one", ["two"])


async def test_failover_sends_prompts_of_an_overloaded_agent_to_another():
    async with example("failover") as client:
        session = await opened(client)
        assert await client.prompt(session, "say hello") == ENDED
    assert "hello" in client.transcript.text()


async def test_hello_has_a_proxy_and_an_agent():
    async with example("hello") as client:
        session = await opened(client)
        for prompt in ("say hello", "help", "/usage"):
            assert (await client.prompt(session, prompt))["stopReason"] == "end_turn"
    said = client.transcript.text()
    assert said.startswith("hello")
    assert "list the commands" in said
    assert said.endswith("The agent has not reported any usage yet.")


async def test_hide_tools_hides_tools_from_the_agent_and_calls_from_the_user():
    async def list_tools(session):
        params = {"serverId": "s1", "requestId": "r1", "method": "tools/list"}
        listed.append(await agent.endpoint.request("mcp/message", params))

    def call(kind):
        return {"sessionUpdate": "tool_call", "toolCallId": kind, "title": kind, "kind": kind}

    tools = [{"name": name} for name in ("list", "delete_all", "merge")]
    listed = []
    agent = FakeAgent(turns=[[list_tools, call("read"), call("search"), call("edit")]])
    agent.capabilities = {"mcpCapabilities": {"acp": True}}
    async with example("hide_tools", agent) as client:
        client.handlers["mcp/message"] = lambda params: {"result": {"tools": tools}}
        await client.initialize()
        server = {"type": "acp", "name": "github", "serverId": "s1"}
        await client.prompt(await client.new_session("/work", [server]), "go")
    assert listed == [{"result": {"tools": [{"name": "list"}]}}]
    assert client.transcript.updates() == [call("edit")]


async def test_hooks_run_commands_and_checks_at_the_end_of_a_turn(tmp_path, monkeypatch):
    """Those of the example change nothing that a client sees: the programs of that name do here."""
    for name in ("printf", "true", "cat"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"{name} $*\" >> {tmp_path}/called\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "rm", "kind": "delete"}
    agent = FakeAgent()

    async def ask(session):
        await agent.ask(session, {"toolCallId": "1"})

    agent.turns.append([call, ask])
    async with example("hooks", agent) as client:
        await client.prompt(await opened(client, tmp_path), "go")
    called = (tmp_path / "called").read_text().splitlines()
    assert sorted(called) == ["cat ", "printf \\a", "printf \\a", "true "]


async def test_ignored_rule_does_not_deny_deploying():
    """The mistake of the example: its first rule allows what the second would deny."""
    async with example("ignored_rule") as client:
        await client.prompt(await opened(client), "ask Deploy")
    assert client.transcript.text() == "Deploy: allow\n"
    assert client.transcript.of("session/request_permission") == []


async def test_journal_lists_and_loads_sessions_for_an_agent_that_cannot():
    async with example("journal", FakeAgent(turns=[["hello"]])) as client:
        session = await opened(client)
        await client.prompt(session, "say hello")
    async with example("journal", FakeAgent()) as client:
        await client.initialize()
        listed = await client.request("session/list", {})
        assert [each["sessionId"] for each in listed["sessions"]] == [session]
        await client.request("session/load", {**NEW, "sessionId": session})
    assert client.transcript.text().startswith("hello\n\n[The agent has not loaded this session.")


async def test_known_kinds_leaves_out_what_the_client_lacks():
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    unknown = {"sessionUpdate": "weather_update", "title": "Rain"}
    async with example("known_kinds", FakeAgent(turns=[[usage, unknown, "hello"]])) as client:
        await client.prompt(await opened(client), "hi")
    kinds = {each["sessionUpdate"] for each in client.transcript.updates()}
    assert kinds == {"agent_message_chunk"}
    assert client.transcript.text().endswith("hello")


async def test_local_files_reads_and_after_a_question_writes(project):
    agent = FakeAgent()
    async with example("local_files", agent) as client:
        session = await opened(client, project, {})
        file = {"sessionId": session, "path": str(project / "a.txt")}
        request = agent.endpoint.request
        assert await request("fs/read_text_file", file) == {"content": "one"}
        assert client.transcript.of("session/request_permission") == []
        assert await request("fs/write_text_file", {**file, "content": "two"}) == {}
        with pytest.raises(RequestError, match="not in the directories of the session"):
            await request("fs/read_text_file", {**file, "path": "/etc/hostname"})
    assert announced(agent) == {"fs": {"readTextFile": True, "writeTextFile": True}}
    assert len(client.transcript.of("session/request_permission", "request")) == 1
    assert (project / "a.txt").read_text() == "two"


async def test_local_terminals_runs_commands_after_a_question(project):
    agent = FakeAgent()
    async with example("local_terminals", agent) as client:
        session = await opened(client, project, {})
        request = agent.endpoint.request
        made = await request("terminal/create", {"sessionId": session, "command": "echo $((6*7))"})
        terminal = {"sessionId": session, **made}
        await request("terminal/wait_for_exit", terminal)
        output = await request("terminal/output", terminal)
    assert (output["output"], output["exitStatus"]["exitCode"]) == ("42\n", 0)
    assert announced(agent) == {"terminal": True}
    assert len(client.transcript.of("session/request_permission", "request")) == 1


async def test_log_messages_shows_the_effect_of_the_proxy_between(capsys):
    log.configure("info", as_json=True)
    async with example("log_messages", FakeAgent()) as client:
        await client.prompt(await opened(client), "say hello")
    lines = map(json.loads, capsys.readouterr().err.splitlines())
    before, after = (
        line["bytes"]
        for line in lines
        if line.get("method") == "session/prompt" and line["kind"] == "request"
    )
    assert after > before + len("Answer briefly.")


async def test_mcp_servers_are_added_by_directory_and_agent_and_removed_by_name(tmp_path):
    info = {"agentInfo": {"name": "claude-agent", "version": "1"}}
    answer = {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}}
    agent = FakeAgent(handlers={"initialize": lambda params: answer | info})
    old, kept = ({"name": n, "command": "/x", "args": [], "env": []} for n in ("old-x", "kept"))
    (tmp_path / "work/app").mkdir(parents=True)
    async with example("mcp_servers", agent) as client:
        await client.initialize()
        for cwd in (tmp_path / "work/app", tmp_path):
            await client.new_session(str(cwd), [old, kept])
    requests = agent.transcript.of("session/new", "request")
    inside, outside = ([s["name"] for s in each.params["mcpServers"]] for each in requests)
    assert inside == ["kept", "docs", "api"]
    assert outside == ["kept", "api"]


async def test_mcp_tools_hides_and_renames_tools():
    async def use(session):
        for method, more in (
            ("tools/list", {}),
            ("tools/call", {"params": {"name": "search"}}),
            ("tools/call", {"params": {"name": "delete_note"}}),
        ):
            request = {"serverId": "s1", "requestId": "r1", "method": method, **more}
            learned.append(await agent.endpoint.request("mcp/message", request))

    def serve(params):
        if params["method"] == "tools/list":
            return {"result": {"tools": [{"name": "find"}, {"name": "delete_note"}]}}
        called.append(params["params"]["name"])
        return {"result": {"content": []}}

    called, learned = [], []
    agent = FakeAgent(turns=[[use]], capabilities={"mcpCapabilities": {"acp": True}})
    async with example("mcp_tools", agent) as client:
        client.handlers["mcp/message"] = serve
        await client.initialize()
        server = {"type": "acp", "name": "notes", "serverId": "s1"}
        await client.prompt(await client.new_session("/work", [server]), "tools")
    listed, found, refused = learned
    (tool,) = listed["result"]["tools"]
    assert (tool["name"], tool["description"]) == ("search", "Search the notes.")
    assert "result" in found
    assert "error" in refused
    assert called == ["find"]


async def test_normalize_lets_an_agent_have_one_turn_at_a_time():
    running = most = 0

    async def turn(session):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        running -= 1

    agent = FakeAgent(turns=[[turn], [turn]])
    async with example("normalize", agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        for text in ("one", "two"):
            nursery.start_soon(client.prompt, session, text)
    assert sorted(prompts(agent)) == [["one"], ["two"]]
    assert most == 1


async def test_path_map_shows_the_project_at_another_path(tmp_path):
    project = str(tmp_path / "work/app")
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read", "kind": "read"}
    inside = call | {"locations": [{"path": "/workspace/a.py"}]}
    agent = FakeAgent(turns=[[inside]])
    async with example("path_map", agent) as client:
        await client.prompt(await opened(client, project), "hi")
    (request,) = agent.transcript.of("session/new", "request")
    assert request.params["cwd"] == "/workspace"
    assert client.transcript.updates() == [call | {"locations": [{"path": f"{project}/a.py"}]}]


async def test_permissions_allow_deny_and_ask():
    async with example("permissions") as client:
        session = await opened(client)
        for what in (
            "Deploy",
            "Read it kind=read path=a.txt",
            "Read it kind=read path=.env",
            "Look command='git status --stat'",
            "Push command='git push --force'",
        ):
            await client.prompt(session, f"ask {what}")
        assert client.transcript.of("session/request_permission") == []
        await client.prompt(session, "ask Edit it kind=edit path=a.txt")
    assert list(filter(None, client.transcript.text().splitlines())) == [
        "[denied by rule no deploying: Deploy]",
        "Deploy: reject",
        "Read it: allow",
        "[denied by rule no secrets: Read it]",
        "Read it: reject",
        "Look: allow",
        "[denied by rule no force: Push]",
        "Push: reject",
        "Edit it: allow",
    ]
    assert len(client.transcript.of("session/request_permission", "request")) == 1


async def test_queue_keeps_prompts_until_the_end_of_the_turn():
    agent, go_on = FakeAgent(), trio.Event()

    async def wait(session):
        await go_on.wait()

    agent.turns.append([wait])
    async with example("queue", agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        for text in ("one", "two"):
            nursery.start_soon(client.prompt, session, text)
            await trio.testing.wait_all_tasks_blocked()
        await client.prompt(session, "/queue")
        assert prompts(agent) == [["one"]]
        go_on.set()
    assert prompts(agent) == [["one"], ["two"]]
    assert "two" in client.transcript.text()


async def test_rate_limit_lets_ten_prompts_a_minute_pass(virtual_clock):
    agent = FakeAgent()
    async with example("rate_limit", agent) as client:
        session = await opened(client)
        start = trio.current_time()
        for _ in range(10):
            await client.prompt(session, "hi")
        assert trio.current_time() - start < 1
        assert await client.prompt(session, "hi") == ENDED
        assert trio.current_time() - start >= 5


async def test_redact_replaces_keys_and_tokens_for_the_model_and_for_the_user(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    key = "AKIAABCDEFGHIJKLMNOP"
    agent = FakeAgent(turns=[[f"it is {key}"]])
    async with example("redact", agent) as client:
        session = await opened(client)
        await client.prompt(session, f"{key} ACME-123456 correct-horse-battery")
    ((text,),) = prompts(agent)
    assert text == ("[redacted:aws-key-id:1] [redacted:ticket:2] [redacted:MY_TOKEN:3]")
    assert client.transcript.text() == "it is [redacted:aws-key-id:1]"


async def test_remember_gives_new_sessions_the_last_mode_but_not_code(tmp_path):
    current = {"mode": "ask"}
    modes = [{"id": each, "name": each} for each in ("ask", "plan", "code")]

    def set_up(params):
        current["mode"] = "ask"
        return {"sessionId": "s", "modes": {"currentModeId": "ask", "availableModes": modes}}

    def set_mode(params):
        current["mode"] = params["modeId"]
        return {}

    async def new(client, cwd):
        answer = await client.request("session/new", {"cwd": cwd, "mcpServers": []})
        return answer["modes"]["currentModeId"], current["mode"]

    handlers = {"session/new": set_up, "session/set_mode": set_mode}
    async with example("remember", FakeAgent(handlers=handlers)) as client:
        await client.initialize()
        for mode in ("plan", "code"):
            await new(client, "/a")
            await client.request("session/set_mode", {"sessionId": "s", "modeId": mode})
        assert await new(client, "/b") == ("plan", "plan")


async def test_session_processes_start_an_agent_for_each_session():
    async with attach_file(FakeClient, load(str(CHAINS / "session_processes.yaml"))) as attached:
        client = attached.client
        await client.initialize()
        sessions = [await client.new_session("/work") for _ in range(3)]
        for session in sessions:
            await client.prompt(session, f"say {session}")
    assert len({*sessions}) == 3
    # The first session of each: an agent with all of them counts on.
    assert all("session-1" in session for session in sessions)
    assert [client.transcript.text(each) for each in sessions] == sessions


async def test_system_prompt_is_one_if_the_agent_has_it_and_else_text_of_the_first_prompt():
    able = {"sessionCapabilities": {"systemPrompt": {}}}
    for capabilities in (able, {}):
        agent = FakeAgent(capabilities=capabilities)
        async with example("system_prompt", agent) as client:
            await client.prompt(await opened(client), "echo")
        (new,) = agent.transcript.of("session/new", "request")
        (texts,) = prompts(agent)
        told = str(new.params.get("systemPrompt")) if capabilities else texts[0]
        assert "Answer in British English." in told
        assert "Say what you are not sure of." in told
        assert texts[-1] == "echo"
        assert (len(texts) == 1) is bool(capabilities)


async def test_usage_is_shown_on_command():
    usage = {"totalTokens": 1500, "inputTokens": 1000, "outputTokens": 500}
    agent = FakeAgent(turns=[[ENDED | {"usage": usage}]] * 2)
    async with example("usage", agent) as client:
        session = await opened(client)
        for text in ("one", "two", "/usage"):
            await client.prompt(session, text)
    assert client.transcript.text().startswith("Tokens: 3,000 in 2 turns (input 2,000, output")
    assert prompts(agent) == [["one"], ["two"]]


def test_every_example_has_a_test_here_and_every_proxy_an_example():
    tests = [name for name, value in globals().items() if inspect.iscoroutinefunction(value)]
    files = {path.stem for path in CHAINS.glob("*.yaml")} - WITHOUT_PROMISE
    without = [each for each in files if not any(f"test_{each}_" in name for name in tests)]
    assert {*without} == ONE_PROXY

    modules = {path.stem for path in (CHAINS.parent / "proxies").glob("[!_]*")} - {"shared"}
    points = entry_points().items()
    assert {name for name, each in points if each.value.startswith("proxies.")} == modules
    assert modules - WITHOUT_EXAMPLE <= files
