from __future__ import annotations

from typing import Any

import pytest
import trio

from conductor.errors import LocalProtocolError
from conductor.proxy import (
    Agent,
    DeclarationError,
    Proxy,
    RequestError,
    on,
    on_cancel,
    on_permission,
    on_prompt,
    on_session,
    on_session_end,
    on_session_setup,
    on_text,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    on_update,
    slash,
)
from conductor.testing import FakeAgent

CALL = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a", "kind": "read"}
DONE = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}
PLAN = {"sessionUpdate": "plan", "entries": []}


class Recorder(Proxy):
    """Records the events of a session."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @on_session
    async def opened(self, session):
        self.seen.append(("session", session.opened_by, session.cwd))

    @on_session_end
    async def ended(self, session):
        self.seen.append(("session end", session.id))

    @on_prompt
    async def prompt(self, session, prompt, forward):
        self.seen.append(("prompt", prompt.text))
        return await forward()

    @on_tool_start
    async def tool_started(self, session, call):
        self.seen.append(("tool start", call.title, call.kind))

    @on_tool_end
    async def tool_ended(self, session, call):
        self.seen.append(("tool end", call.title, call.status))

    @on_turn_end
    async def turn_ended(self, session, end):
        self.seen.append(("turn end", end.stop_reason, dict(end.usage)))

    @on_update("plan")
    async def plan(self, session, update, forward):
        self.seen.append(("plan", update["entries"]))
        await forward()


async def opened(client):
    await client.initialize()
    return await client.new_session("/work")


async def test_events_of_a_session_come_in_order(chain):
    usage = {"totalTokens": 3}
    end = {"stopReason": "end_turn", "usage": usage}
    recorder = Recorder()
    async with chain(recorder, FakeAgent(turns=[[CALL, DONE, DONE, PLAN, end]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")
        assert client.transcript.updates() == [CALL, DONE, DONE, PLAN]

    assert recorder.seen == [
        ("session", "new", "/work"),
        ("prompt", "hi"),
        ("tool start", "Read a", "read"),
        ("tool end", "Read a", "completed"),
        ("plan", []),
        ("turn end", "end_turn", usage),
        ("session end", session),
    ]


async def test_on_prompt_changes_answers_and_refuses(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            match prompt.text:
                case "change":
                    prompt.blocks[0]["text"] = "changed"
                    return await forward()
                case "answer":
                    return await prompt.answer("by the proxy", stop_reason="refusal")
            raise RequestError(-32000, "no")

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "change")
        answer = await client.prompt(session, "answer")
        with pytest.raises(RequestError, match="no"):
            await client.prompt(session, "other")

    assert answer["stopReason"] == "refusal"
    assert client.transcript.text() == "by the proxy"
    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["prompt"][0]["text"] for each in prompts] == ["changed"]


async def test_on_text_replaces_a_piece_of_text(chain):
    class P(Proxy):
        @on_text
        async def shout(self, session, text):
            return text.upper() if text != "left" else None

    async with chain(P(), FakeAgent(turns=[["one ", "left"]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert client.transcript.text() == "ONE left"


async def test_on_update_drops_what_it_does_not_forward(chain):
    class P(Proxy):
        @on_update("plan")
        async def drop(self, session, update, forward): ...

    async with chain(P(), FakeAgent(turns=[[PLAN, CALL]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert client.transcript.updates() == [CALL]


async def test_a_slash_command_is_announced_and_answered(chain):
    class P(Proxy):
        @slash("notes", "Show the notes")
        async def notes(self, session, arguments):
            return f"notes of {session.cwd}: {arguments}"

        @on_prompt
        async def prompt(self, session, prompt, forward):
            raise AssertionError("a command is no prompt")

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        session = await opened(client)
        answer = await client.prompt(session, "/notes all of them")

    (update,) = [
        each
        for each in client.transcript.updates()
        if each["sessionUpdate"] == "available_commands_update"
    ]
    assert [command["name"] for command in update["availableCommands"]] == ["notes"]
    assert client.transcript.text() == "notes of /work: all of them"
    assert answer["stopReason"] == "end_turn"
    assert agent.transcript.of("session/prompt", "request") == []


async def test_on_permission_answers_with_the_merged_tool_call(chain):
    class P(Proxy):
        @on_permission
        async def decide(self, session, asked, forward):
            return asked.allow() if asked.tool_call.kind == "read" else asked.deny()

    options = [
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
        {"optionId": "n", "name": "No", "kind": "reject_once"},
    ]
    answers = []

    class Asking(Agent):
        @on("initialize")
        async def initialize(self, params):
            return {"protocolVersion": 1, "agentInfo": {"name": "asking", "version": "1"}}

        @on("session/new")
        async def new(self, params):
            return {"sessionId": "s"}

        @on("session/prompt")
        async def prompt(self, params):
            await self.client.update("s", CALL)
            for call in ({"toolCallId": "1"}, {"toolCallId": "2", "kind": "edit"}):
                answers.append(
                    await self.client.request(
                        "session/request_permission",
                        {"sessionId": "s", "toolCall": call, "options": options},
                    )
                )
            return {"stopReason": "end_turn"}

    async with chain(P(), Asking()) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert [each["outcome"]["optionId"] for each in answers] == ["y", "n"]


@pytest.mark.parametrize(
    ("between", "known"),
    [
        ([], {"kind": "execute", "rawInput": {"command": "rm x"}}),
        ([{**CALL, "kind": "read"}], {"kind": "read"}),
        ([{**CALL, "status": "failed"}], {}),
    ],
)
async def test_a_permission_request_is_merged_with_earlier_ones_about_the_call(
    chain, between, known
):
    class P(Proxy):
        @on_permission
        async def decide(self, session, asked, forward):
            found.append((asked.tool_call.members, asked.evidence))
            return asked.deny()

    async def ask(session, **members):
        params = {"sessionId": session, "toolCall": {"toolCallId": "1", **members}, "options": []}
        await agent.endpoint.request("session/request_permission", params)

    async def ask_in_detail(session):
        await ask(session, kind="execute", rawInput={"command": "rm x"})

    found, agent = [], FakeAgent()
    agent.turns.append([CALL, ask_in_detail, *between, ask])
    async with chain(P(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    merged, evidence = found[-1]
    assert {name: merged[name] for name in ("kind", "rawInput") if name in merged} == known
    assert evidence.asked == {"toolCallId": "1"}
    assert evidence.announced.get("kind") in (known and "read", None)


async def test_a_prompt_that_no_handler_reads_is_not_decoded(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            before = prompt.is_read
            result = await forward()
            seen.append((before, prompt.is_read, prompt.text, prompt.is_read))
            return result

    seen, agent = [], FakeAgent()
    async with chain(P(), agent) as client:
        await client.prompt(await opened(client), "hi")

    assert seen == [(False, False, "hi", True)]


async def test_a_prompt_without_a_session_is_refused(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await forward()

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        await opened(client)
        with pytest.raises(RequestError, match="no sessionId"):
            await client.request("session/prompt", {"prompt": []})

    assert agent.transcript.of("session/prompt", "request") == []


@pytest.mark.parametrize("opened_by", ["new", "load", "resume", "fork"])
async def test_on_session_setup_changes_the_request_that_opens_a_session(acp_chain, opened_by):
    class P(Proxy):
        @on_session_setup
        async def add(self, setup, forward):
            seen.append((setup.opened_by, setup.session_id, setup.cwd, setup.mcp_servers))
            setup.mcp_servers = [*setup.mcp_servers, others]
            return {**await forward(), "seen": True}

        @on_session
        async def opened(self, session):
            names.append(session.mcp_server_names)

    seen, names, method = [], [], f"session/{opened_by}"
    notes = {"name": "notes", "command": "/bin/notes", "args": [], "env": []}
    others = {**notes, "name": "others"}
    agent = FakeAgent(handlers={method: lambda params: {"sessionId": "s1"}})
    params = {"cwd": "/work", "mcpServers": [notes]}
    params |= {} if opened_by == "new" else {"sessionId": "s0"}
    async with acp_chain(P(), agent) as client:
        await client.initialize()
        assert await client.request(method, params) == {"sessionId": "s1", "seen": True}

    assert seen == [(opened_by, params.get("sessionId"), "/work", [notes])]
    (sent,) = agent.transcript.of(method, "request")
    assert sent.params == {**params, "mcpServers": [notes, others]}
    assert names == [["notes", "others"]]


async def test_a_set_up_that_is_not_changed_keeps_its_bytes(acp_chain):
    class P(Proxy):
        @on_session_setup
        async def look(self, setup, forward):
            setup.mcp_servers.append({"name": "not set"})
            return await forward()

    agent = FakeAgent()
    async with acp_chain(P(), agent) as client:
        await client.initialize()
        await client.request("session/new", {"cwd": "/work"})

    (sent,) = agent.transcript.of("session/new", "request")
    assert sent.params == {"cwd": "/work"}


async def test_an_exception_in_an_observing_handler_lets_the_message_pass(chain, caplog):
    class P(Proxy):
        @on_tool_start
        async def fail(self, session, call):
            raise ValueError("no")

    async with chain(P(), FakeAgent(turns=[[CALL]])) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert client.transcript.updates() == [CALL]


async def test_a_proxy_knows_the_client_and_the_agent(chain):
    proxy = Recorder()
    async with chain(proxy) as client:
        await client.initialize()
        assert proxy.protocol_version == 1
        assert proxy.agent_info["name"]


def test_parameters_of_an_event_handler_are_checked():
    with pytest.raises(DeclarationError, match=r"self, session, prompt, forward"):

        class P(Proxy):
            @on_prompt
            async def prompt(self, prompt, session, forward): ...


RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {**RUNNING, "state": "idle", "stopReason": "end_turn", "usage": {"totalTokens": 3}}


async def test_in_version_2_the_idle_state_ends_a_turn_once(chain):
    recorder = Recorder()

    async def end(session):
        agent.update(session, IDLE)
        agent.update(session, IDLE)

    agent = FakeAgent(turns=[[RUNNING, {**CALL, "sessionUpdate": "tool_call_update"}, DONE, end]])
    async with chain(recorder, agent) as client:
        await client.initialize(version=2)
        session = (await client.request("session/new", {"cwd": "/work"}))["sessionId"]
        await client.prompt(session, "hi")
        await client.transcript.wait("session/update state_update", count=3)
        assert recorder.protocol_version == 2

    assert recorder.seen == [
        ("session", "new", "/work"),
        ("prompt", "hi"),
        ("tool start", "Read a", "read"),
        ("tool end", "Read a", "completed"),
        ("turn end", "end_turn", {"totalTokens": 3}),
        ("session end", session),
    ]


async def test_in_version_2_an_answered_prompt_is_a_whole_turn(chain):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await prompt.answer("by the proxy")

    agent = FakeAgent()
    async with chain(P(), agent) as client:
        await client.initialize(version=2)
        session = (await client.request("session/new", {"cwd": "/work"}))["sessionId"]
        await client.prompt(session, "hi")

    states = [each.get("state") for each in client.transcript.updates()]
    assert [state for state in states if state] == ["running", "idle"]
    assert agent.transcript.of("session/prompt", "request") == []


async def test_after_answer_runs_once_the_answer_is_sent(chain):
    class P(Proxy):
        @on("session/new")
        async def new(self, params, forward):
            result = await forward()
            self.after_answer(self.greet, result["sessionId"])
            return result

        async def greet(self, id):
            await self.client.say(id, "welcome")

    async with chain(P()) as client:
        session = await opened(client)
        await client.transcript.wait("session/update agent_message_chunk")
        assert client.transcript.text(session) == "welcome"


async def test_a_subagents_session_knows_its_parent(chain):
    class P(Proxy):
        @on_text
        async def note(self, session, text):
            return f"{session.parent}: {text}" if session.parent else None

    child = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "x"}

    async def of_child(session):
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}}
        agent.update("child", chunk)

    agent = FakeAgent(turns=[[child, of_child]])
    async with chain(P(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "hi")

    assert client.transcript.text("child") == f"{session}: hi"


async def test_a_subagents_session_knows_all_sessions_above_it_and_the_users(chain):
    class P(Proxy):
        @on_text
        async def note(self, session, text):
            above = [each.id for each in session.ancestors]
            return f"{above} {session.user_session.id} {self.session_by_id('child').parent}; "

    def subagent(id):
        return {"sessionUpdate": "subagent_update", "sessionId": id, "title": "x"}

    def say(id):
        content = {"type": "text", "text": "hi"}
        agent.update(id, {"sessionUpdate": "agent_message_chunk", "content": content})

    async def work(session):
        agent.update("child", subagent("grandchild"))
        for id in (session, "child", "grandchild"):
            say(id)
        agent.update("grandchild", subagent("child"))
        say("child")

    agent = FakeAgent(turns=[[subagent("child"), work]])
    async with chain(P(), agent) as client:
        user = await opened(client)
        await client.prompt(user, "hi")

    assert client.transcript.text(user) == f"[] {user} {user}; "
    child, circle = client.transcript.text("child").split("; ")[:2]
    assert child == f"['{user}'] {user} {user}"
    assert circle == "['grandchild'] grandchild grandchild"
    assert client.transcript.text("grandchild") == f"['child', '{user}'] {user} {user}; "


async def test_on_cancel_comes_before_the_agent_learns_of_it(chain):
    seen = []

    class P(Proxy):
        @on_cancel
        async def cancelled(self, session):
            seen.append(("proxy", session.cancelled))

    agent = FakeAgent(handlers={"session/cancel": lambda params: seen.append("agent")})
    async with chain(P(), agent) as client:
        session = await opened(client)
        client.cancel(session)
        await client.prompt(session, "hi")

    assert seen == [("proxy", True), "agent"]


@pytest.mark.parametrize(
    ("capabilities", "shown"),
    [
        ({}, "\n[Slow: be patient]\n"),
        ({"session": {"notices": {}}}, ""),
    ],
)
async def test_a_notice_is_a_text_for_clients_without_notices(chain, capabilities, shown):
    class P(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            await session.notice("Slow", "be patient", severity="warning")
            return await forward()

    async with chain(P(), FakeAgent()) as client:
        await client.initialize(capabilities=capabilities)
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    assert client.transcript.text() == shown
    if not shown:
        notice = {"sessionUpdate": "notice", "severity": "warning"}
        (update,) = client.transcript.updates()
        assert update == {**notice, "title": "Slow", "description": "be patient"}


async def test_session_by_id_says_what_it_needs(chain):
    class P(Proxy):
        @on_session
        async def opened(self, session):
            assert self.session_by_id(session.id) is session

    with_events, without = P(), Proxy()
    async with chain(with_events, without) as client:
        await opened(client)
        with pytest.raises(LocalProtocolError, match="needs an event handler in the class"):
            without.session_by_id("s")


class Held(Proxy):
    """Holds every prompt back until `free` is set."""

    def __init__(self) -> None:
        self.free, self.waits = trio.Event(), trio.Event()

    @on_prompt
    async def hold(self, session, prompt, forward):
        self.waits.set()
        await prompt.wait(self.free.wait)
        return await forward()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_prompt_that_is_held_back_is_cancelled_with_the_session(chain, version):
    proxy, agent, answers = Held(), FakeAgent(), []
    async with chain(proxy, agent) as client:
        await client.initialize(version=version)
        session = await client.new_session("/work")

        async def prompt():
            try:
                answers.append(await client.prompt(session, "hi"))
            except RequestError as exc:
                answers.append(exc.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompt)
            await proxy.waits.wait()
            client.cancel(session)

    assert answers == [{"stopReason": "cancelled"} if version == 1 else -32800]
    assert agent.transcript.of("session/prompt", "request") == []


async def test_a_prompt_goes_on_after_it_was_held_back(chain):
    proxy, agent = Held(), FakeAgent(turns=[["done"]])
    proxy.free.set()
    async with chain(proxy, agent) as client:
        await client.prompt(await opened(client), "hi")

    assert client.transcript.text() == "done"


async def test_the_update_that_ends_a_tool_call_still_finds_it(chain):
    seen: list[Any] = []

    class Titles(Proxy):
        @on_update("tool_call", "tool_call_update")
        async def update(self, session, update, forward):
            seen.append([each.title for each in session.tool_calls.values()])
            await forward()

    again = {**CALL, "toolCallId": "2"}
    async with chain(Titles(), FakeAgent(turns=[[CALL, DONE, again]])) as client:
        await client.prompt(await opened(client), "hi")

    assert seen == [["Read a"], ["Read a"], ["Read a"]]


async def test_a_fork_knows_its_origin(chain):
    seen: list[Any] = []

    class Origins(Proxy):
        @on_session
        async def opened(self, session):
            seen.append(session.forked_from)

    agent = FakeAgent(handlers={"session/fork": lambda params: {"sessionId": "copy"}})
    async with chain(Origins(), agent) as client:
        session = await opened(client)
        await client.request("session/fork", {"sessionId": session, "cwd": "/work"})
        await client.prompt("copy", "hi")

    assert seen == [None, session]


async def test_a_prompt_tells_whether_a_proxy_has_answered_it(chain):
    seen: list[Any] = []

    class Answered(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            result = await forward()
            seen.append(prompt.answered_by_proxy)
            return result

    class Refuses(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await (prompt.answer("no") if prompt.text == "bad" else forward())

    async with chain(Answered(), Refuses(), FakeAgent()) as client:
        session = await opened(client)
        for text in ("good", "bad"):
            await client.prompt(session, text)

    assert seen == [False, True]


async def test_a_tool_call_may_have_the_id_of_an_unfinished_one_of_an_earlier_turn(chain):
    recorder = Recorder()
    again = {**CALL, "title": "Read b"}
    async with chain(recorder, FakeAgent(turns=[[CALL, CALL], [again, DONE]])) as client:
        session = await opened(client)
        await client.prompt(session, "one")
        await client.prompt(session, "two")

    assert [each for each in recorder.seen if each[0].startswith("tool")] == [
        ("tool start", "Read a", "read"),
        ("tool start", "Read b", "read"),
        ("tool end", "Read b", "completed"),
    ]


@pytest.mark.parametrize(
    ("outcome", "allowed"),
    [
        ({"outcome": "selected", "optionId": "allow"}, "True"),
        ({"outcome": "selected", "optionId": "reject"}, "False"),
        ({"outcome": "cancelled"}, "False"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_a_session_asks_for_permission_in_both_versions(chain, version, outcome, allowed):
    class Asking(Proxy):
        @slash("ask", "Ask")
        async def ask(self, session, arguments):
            return str(await session.ask("Delete a", "It is old.", kind="delete"))

    asked = []
    async with chain(Asking(), FakeAgent()) as client:

        def decide(params):
            asked.append(params)
            return {"outcome": outcome}

        client.handlers["session/request_permission"] = decide
        await client.initialize(version=version)
        await client.prompt(await client.new_session(), "/ask")

    assert client.transcript.text() == allowed
    [params] = asked
    assert [option["kind"] for option in params["options"]] == ["allow_once", "reject_once"]
    if version == 1:
        call = {**params["toolCall"], "toolCallId": ""}
        content = {"type": "content", "content": {"type": "text", "text": "It is old."}}
        assert call == {
            "toolCallId": "",
            "title": "Delete a",
            "kind": "delete",
            "content": [content],
        }
    else:
        assert (params["title"], params["description"]) == ("Delete a", "It is old.")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda f: slash("notes")(f), """@slash('notes') has no description: write @slash("""),
        (lambda f: slash(f), "@slash has no description: write @slash("),
        (lambda f: slash("notes", "")(f), "@slash('notes') has no description"),
        (lambda f: slash("", "Show")(f), 'write @slash("<name>", "<description>")'),
    ],
)
def test_a_slash_command_without_name_or_description_is_a_mistake(declare, message):
    async def handler(self, session, arguments):
        return "Done."

    with pytest.raises(DeclarationError) as caught:
        declare(handler)
    assert message in str(caught.value)
