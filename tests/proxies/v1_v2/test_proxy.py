from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from conductor.proxy import Proxy, RawMessage, RequestError, on, slash
from conductor.testing import FakeAgent
from conductor.testing import updates as updates_of
from proxies.v1_v2 import V1V2

OPTIONS = [{"optionId": "allow", "name": "Allow", "kind": "allow_once"}]
MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}
MODE_OPTION = {
    "configId": "m",
    "name": "Mode",
    "category": "mode",
    "type": "select",
    "currentValue": "ask",
    "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}],
}

SKILL = {"type": "skill", "name": "pdf"}
GO = ("command", "go")


async def opened(client, version):
    await client.initialize(version=version)
    answer = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
    return answer["sessionId"]


def agent_of(version, **options):
    """An agent that speaks only this version."""
    agent = FakeAgent(**options)
    initialize = agent.handlers["initialize"]

    def only(params):
        if params["protocolVersion"] != version:
            raise RequestError(-32022 if version == 2 else -32602, f"only version {version}")
        return initialize(params)

    agent.handlers["initialize"] = only
    return agent


def updates(client, kind=None):
    found = client.transcript.updates()
    return [each for each in found if kind is None or each["sessionUpdate"] == kind]


class Remembers:
    """The handlers of an agent of version 2 that replays its one session in whole messages."""

    def __init__(self, agent):
        self.agent, self.history, self.fails = agent, [], False
        agent.handlers |= {"session/prompt": self.prompt, "session/resume": self.resume}

    async def prompt(self, params):
        session, number = params["sessionId"], len(self.history)
        said = [
            updates_of.message(f"u{number}", "hi", kind="user_message"),
            updates_of.state("running"),
            updates_of.tool_call(f"t{number}", "Read a", version=2, status="completed"),
            updates_of.message(f"a{number}", "Hello"),
            updates_of.state("idle", stopReason="end_turn"),
        ]
        self.history += said
        for each in said:
            self.agent.update(session, each)
        return {"messageId": f"u{number}"}

    async def resume(self, params):
        if "replayFrom" in params:
            for each in self.history:
                self.agent.update(params["sessionId"], each)
        if self.fails:
            raise RequestError(-32603, "no")
        return {}


async def test_an_open_session_that_is_loaded_is_replayed_as_a_whole(chain):
    """The client shows nothing of it any more; what follows is not repeated."""
    agent = agent_of(2, capabilities={"session": {}})
    Remembers(agent)
    async with chain(V1V2(2), agent, strict=True) as client:
        session = await opened(client, 1)
        await client.prompt(session, "hi")
        live = [each["sessionUpdate"] for each in updates(client)]
        assert live == ["tool_call", "agent_message_chunk"]
        load = {"sessionId": session, "cwd": "/work", "mcpServers": []}
        for _ in range(2):
            before = len(updates(client))
            await client.request("session/load", load)
            replayed = updates(client)[before:]
            kinds = ["user_message_chunk", "tool_call", "agent_message_chunk"]
            assert [each["sessionUpdate"] for each in replayed] == kinds
            assert [each["content"]["text"] for each in replayed[::2]] == ["hi", "Hello"]
            asked = agent.transcript.of("session/resume", "request")[-1].params
            assert asked == {**load, "replayFrom": {"type": "start"}}

        before = len(updates(client))
        await client.request("session/resume", load)
        agent.update(session, updates_of.message("a0", "Hello, you"))
        await client.prompt(session, "hi")
        later = updates(client)[before:]
        assert [each["content"]["text"] for each in later if "content" in each] == [
            ", you",
            "Hello",
        ]


async def test_states_of_the_history_do_not_end_the_turn_that_runs(chain):
    agent = agent_of(2, capabilities={"session": {}})
    remembers = Remembers(agent)
    async with chain(V1V2(2), agent, strict=True) as client, trio.open_nursery() as nursery:
        session = await opened(client, 1)
        await client.prompt(session, "hi")
        agent.handlers["session/prompt"] = lambda params: {"messageId": "u"}
        ended = []

        async def prompt():
            ended.append(await client.prompt(session, "go on"))

        nursery.start_soon(prompt)
        await agent.transcript.wait("session/prompt?", count=2)
        agent.update(session, updates_of.state("running"))
        remembers.history += [updates_of.state("running")]
        await client.request(
            "session/load", {"sessionId": session, "cwd": "/work", "mcpServers": []}
        )
        assert ended == []
        agent.update(session, updates_of.state("idle", stopReason="max_tokens"))
    assert ended == [{"stopReason": "max_tokens"}]


async def test_an_agent_that_answers_prompts_as_in_version_1_ends_the_turn_with_it(chain):
    agent = agent_of(2)
    agent.handlers["session/prompt"] = lambda params: {"stopReason": "refusal"}
    async with chain(V1V2(2), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "hi") == {"stopReason": "refusal"}


@pytest.mark.parametrize("answer", [[], "yes", 1])
@pytest.mark.parametrize("method", ["session/new", "session/prompt"])
async def test_an_answer_that_is_no_object_is_an_error_that_names_the_adapter(
    chain, method, answer
):
    agent = agent_of(2)
    agent.handlers[method] = lambda params: answer
    async with chain(V1V2(2), agent) as client:
        await client.initialize()
        with pytest.raises(RequestError, match="v1_v2: the agent's answer"):
            await client.request(method, {"sessionId": "s", "cwd": "/work", "prompt": []})


@pytest.mark.parametrize("named", [True, False])
async def test_a_client_of_version_1_gets_the_end_of_the_turn_as_the_answer(chain, named):
    agent = agent_of(2, turns=[["Hello", ", you"]])
    async with chain(V1V2(2 if named else None), agent, strict=True) as client:
        answer = await client.initialize()
        assert answer["protocolVersion"] == 1
        assert answer["agentInfo"]["name"] == "fake-agent"
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        result = await client.prompt(opened["sessionId"], "hi")

    assert result == {"stopReason": "end_turn"}
    assert client.transcript.text() == "Hello, you"
    sent = agent.transcript.of("initialize", "request")[-1].params
    assert sent["protocolVersion"] == 2
    assert sent["info"]["name"] == "fake-client"
    assert sent["capabilities"] == {"session": {"commands": {"skill": {}}}}


@pytest.mark.parametrize("named", [True, False])
async def test_a_client_of_version_2_gets_the_answer_at_once_and_a_state(chain, named):
    agent = agent_of(1, turns=[["Hello", ", you"]])
    async with chain(V1V2(1 if named else None), agent, strict=True) as client:
        session = await opened(client, 2)
        end = await client.prompt_turn(session, "hi")

    assert end["stopReason"] == "end_turn"
    kinds = [each["sessionUpdate"] for each in updates(client)]
    assert kinds == [
        "state_update",
        "user_message",
        "agent_message_chunk",
        "agent_message_chunk",
        "state_update",
    ]
    assert len({each["messageId"] for each in updates(client, "agent_message_chunk")}) == 1
    sent = agent.transcript.of("initialize", "request")[-1].params
    assert "fs" not in sent["clientCapabilities"]


class Bytes(Proxy):
    """Keeps the answers to prompts as they are written."""

    def __init__(self):
        self.answers = []

    @on("*")
    async def see(self, message: RawMessage):
        if message.kind == "response" and message.method == "session/prompt":
            self.answers.append(message.payload)


async def test_numbers_at_the_end_of_a_turn_keep_their_spelling(chain):
    agent = agent_of(2)
    meta = b'{"cost":1.10,"huge":1e400,"id":123456789012345678901234567890,"lone":"\\ud800"}'
    usage = b'{"totalTokens":1,"inputTokens":1,"outputTokens":0,"x":0.10}'

    def idle(session, members):
        state = b'"sessionUpdate":"state_update","state":"idle"'
        params = b'{"sessionId":"session-1","update":{%b,%b}}' % (state, members)
        agent.endpoint.notify("session/update", params)

    error = b'{"code":-32000,"message":"no","data":%b}' % meta
    agent.turns = [
        [lambda id: idle(id, b'"stopReason":"end_turn","usage":%b,"_meta":%b' % (usage, meta))],
        [lambda id: idle(id, b'"stopReason":"error","error":%b' % error)],
    ]
    bytes_of = Bytes()
    async with chain(bytes_of, V1V2(2), agent, strict=True) as client:
        session = await opened(client, 1)
        await client.prompt(session, "one")
        with pytest.raises(RequestError):
            await client.prompt(session, "two")
    assert bytes_of.answers == [
        b'{"stopReason":"end_turn","usage":%b,"_meta":%b}' % (usage, meta),
        error,
    ]


async def test_a_prompt_that_an_agent_of_version_2_refuses_is_refused(chain):
    agent = agent_of(2, turns=[[RequestError(-32602, "no")]])
    async with chain(V1V2(2), agent, strict=True) as client:
        session = await opened(client, 1)
        with pytest.raises(RequestError, match="no"):
            await client.prompt(session, "hi")


@pytest.mark.parametrize("version", [1, 2])
async def test_a_cancelled_turn_ends_with_cancelled(chain, version):
    agent = agent_of(3 - version)
    cancelled = trio.Event()
    agent.handlers["session/cancel"] = lambda params: cancelled.set()

    async def wait(session):
        await cancelled.wait()

    agent.turns = [["begun", wait, {"stopReason": "cancelled"}]]
    async with chain(V1V2(3 - version), agent, strict=True) as client, trio.open_nursery() as tasks:
        session = await opened(client, version)
        ended = []

        async def prompt():
            ended.append(await client.prompt_turn(session, "hi"))

        tasks.start_soon(prompt)
        await client.transcript.wait("session/update agent_message_chunk")
        client.notify("session/cancel", {"sessionId": session})
    assert ended[0]["stopReason"] == "cancelled"


@pytest.mark.parametrize("version", [1, 2])
async def test_a_permission_request_has_the_form_of_the_client(chain, version):
    agent = agent_of(3 - version)
    answers = []

    async def ask(session):
        call = {"toolCallId": "c", "title": "Edit", "kind": "edit"}
        answers.append(await agent.ask(session, call))

    agent.turns = [[ask]]
    async with chain(V1V2(3 - version), agent, strict=True) as client:
        session = await opened(client, version)
        await client.prompt_turn(session, "hi")
    (asked,) = client.transcript.of("session/request_permission", "request")
    call = asked.params["toolCall"] if version == 1 else asked.params["subject"]["toolCall"]
    assert call == {"toolCallId": "c", "title": "Edit", "kind": "edit"}
    assert ("title" in asked.params) == (version == 2)
    assert answers == ["allow"]


async def test_a_permission_for_a_command_is_a_tool_call_in_version_1(chain):
    agent = agent_of(2)

    async def ask(session):
        subject = {"type": "command", "command": "rm x", "cwd": "/work"}
        params = {"sessionId": session, "title": "Run it?", "subject": subject, "options": OPTIONS}
        await agent.endpoint.request("session/request_permission", params)

    agent.turns = [[ask]]
    async with chain(V1V2(2), agent, strict=True) as client:
        await client.prompt(await opened(client, 1), "hi")
    (asked,) = client.transcript.of("session/request_permission", "request")
    assert asked.params["toolCall"] == {
        "toolCallId": "permission-1",
        "kind": "execute",
        "status": "pending",
        "rawInput": {"command": "rm x", "cwd": "/work"},
        "title": "Run it?: rm x",
    }


async def test_modes_of_an_agent_of_version_1_are_an_option(chain):
    agent = agent_of(1)
    agent.handlers["session/new"] = lambda params: {"sessionId": "s", "modes": MODES}
    agent.handlers["session/set_mode"] = lambda params: {}
    agent.turns = [[{"sessionUpdate": "current_mode_update", "currentModeId": "ask"}]]
    async with chain(V1V2(1), agent, strict=True) as client:
        await client.initialize(version=2)
        answer = await client.request("session/new", {"cwd": "/work"})
        option = {**MODE_OPTION, "configId": "mode"}
        assert answer == {"sessionId": "s", "configOptions": [option]}
        chosen = {"sessionId": "s", "configId": "mode", "type": "id", "value": "code"}
        answer = await client.request("session/set_config_option", chosen)
        assert answer["configOptions"] == [{**option, "currentValue": "code"}]
        await client.prompt_turn("s", "hi")

    (sent,) = agent.transcript.of("session/set_mode", "request")
    assert sent.params == {"sessionId": "s", "modeId": "code"}
    (told,) = updates(client, "config_option_update")
    assert told["configOptions"] == [option]


async def test_the_mode_option_of_an_agent_of_version_2_is_a_mode_too(chain):
    agent = agent_of(2)
    agent.handlers["session/new"] = lambda params: {
        "sessionId": "s",
        "configOptions": [MODE_OPTION],
    }
    changed = [{**MODE_OPTION, "currentValue": "code"}]
    agent.handlers["session/set_config_option"] = lambda params: {"configOptions": changed}
    async with chain(V1V2(2), agent, strict=True) as client:
        await client.initialize()
        answer = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert answer["modes"] == MODES
        assert answer["configOptions"][0]["id"] == "m"
        assert await client.request("session/set_mode", {"sessionId": "s", "modeId": "code"}) == {}

    (sent,) = agent.transcript.of("session/set_config_option", "request")
    assert sent.params == {"sessionId": "s", "configId": "m", "type": "id", "value": "code"}
    assert updates(client, "config_option_update")[0]["configOptions"][0]["currentValue"] == "code"


@pytest.mark.parametrize(("after", "told"), [("code", ["code"]), ("ask", [])])
async def test_an_option_that_a_client_of_version_1_sets_tells_the_mode_if_it_changes(
    chain, after, told
):
    agent = agent_of(2)
    other = {"configId": "o", "name": "Effort", "type": "select", "currentValue": "low"}
    other["options"] = [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}]
    before = {"sessionId": "s", "configOptions": [MODE_OPTION, other]}
    changed = [{**MODE_OPTION, "currentValue": after}, {**other, "currentValue": "high"}]
    agent.handlers["session/new"] = lambda params: before
    agent.handlers["session/set_config_option"] = lambda params: {"configOptions": changed}
    async with chain(V1V2(2), agent, strict=True) as client:
        session = await opened(client, 1)
        chosen = {"sessionId": session, "configId": "o", "value": "high"}
        answer = await client.request("session/set_config_option", chosen)

    assert [each["currentValue"] for each in answer["configOptions"]] == [after, "high"]
    assert [each["currentModeId"] for each in updates(client, "current_mode_update")] == told


async def test_commands_in_the_answer_of_version_2_are_an_update_in_version_1(chain):
    agent = agent_of(2)
    hint = {"type": "text", "hint": "what"}
    command = {"type": "command", "name": "go", "description": "Goes", "input": hint}
    result = {"sessionId": "s", "availableCommands": [command]}
    agent.handlers["session/new"] = lambda params: result
    async with chain(V1V2(2), agent, strict=True) as client:
        await client.initialize()
        answer = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert answer == {"sessionId": "s"}
        await client.transcript.wait("session/update available_commands_update")
    (told,) = updates(client, "available_commands_update")
    shown = {"name": "go", "description": "Goes", "input": {"hint": "what"}}
    assert told["availableCommands"] == [shown]


@pytest.mark.parametrize("in_result", [True, False])
@pytest.mark.parametrize(
    ("texts", "sent"),
    [
        (["/pdf"], [SKILL]),
        (["/pdf\n a  b", "more"], [SKILL, "a  b", "more"]),
        (["context", "/pdf a"], [SKILL, "context", "a"]),
        (["/go a"], ["/go a"]),
        (["/pdfs"], ["/pdfs"]),
        (["see /pdf"], ["see /pdf"]),
        (["/ pdf"], ["/ pdf"]),
    ],
)
async def test_the_command_of_a_skill_is_its_block(chain, texts, sent, in_result):
    agent = agent_of(2, capabilities={"session": {"prompt": {"skill": {}}}})
    entries = [{"type": kind, "name": n, "description": ""} for kind, n in (SKILL.values(), GO)]
    new_session = agent.handlers["session/new"]

    def opens(params):
        result = new_session(params)
        if in_result:
            return {**result, "availableCommands": entries}
        update = {"sessionUpdate": "available_commands_update", "availableCommands": entries}
        agent.update(result["sessionId"], update)
        return result

    agent.handlers["session/new"] = opens
    async with chain(V1V2(2), agent, strict=True) as client:
        session = await opened(client, 1)
        await client.transcript.wait("session/update available_commands_update")
        prompt = [{"type": "text", "text": each} for each in texts]
        await client.request("session/prompt", {"sessionId": session, "prompt": prompt})
    (asked,) = agent.transcript.of("session/prompt", "request")
    assert [each.get("text", each) for each in asked.params["prompt"]] == sent
    (initialized,) = agent.transcript.of("initialize", "request")
    assert initialized.params["capabilities"]["session"]["commands"] == {"skill": {}}


@pytest.mark.parametrize("announced", [{}, {"subagents": {}}])
async def test_a_reference_to_a_session_is_for_clients_that_show_subagents(chain, announced):
    reference = {"type": "session", "sessionId": "child"}
    call = updates_of.tool_call("t", "Ask", version=2, content=[reference])
    agent = agent_of(2, turns=[[call]], capabilities={"session": {}})
    async with chain(V1V2(2), agent, strict=True) as client:
        await client.initialize(capabilities=announced)
        session = (await client.request("session/new", {"cwd": "/", "mcpServers": []}))["sessionId"]
        await client.prompt(session, "hi")
    ((shown,),) = (each["content"] for each in updates(client, "tool_call"))
    if announced:
        assert shown == reference
    else:
        assert shown["content"]["text"] == "[content of type session]"


@pytest.mark.parametrize(
    ("capabilities", "replays", "method"),
    [
        ({"loadSession": True}, True, "session/load"),
        ({"loadSession": True}, False, "session/load"),
        ({"sessionCapabilities": {"resume": {}}}, True, "session/resume"),
        ({"sessionCapabilities": {"resume": {}}}, False, "session/resume"),
        ({}, True, None),
        ({}, False, None),
    ],
)
async def test_resume_uses_what_an_agent_of_version_1_has(chain, capabilities, replays, method):
    agent = agent_of(1, capabilities=capabilities)

    async def load(params):
        agent.say(params["sessionId"], "history")
        return {}

    agent.handlers |= {"session/load": load, "session/resume": lambda params: {}}
    params = {"sessionId": "s", "cwd": "/work"}
    heard = []
    if replays:
        params["replayFrom"] = {"type": "start"}
    async with chain(V1V2(1), agent, strict=True) as client:
        await client.initialize(version=2)
        if method is None:
            with pytest.raises(RequestError, match=r"v1_v2: .* cannot open earlier sessions"):
                await client.request("session/resume", params)
            return
        await client.request(
            "session/resume", params, answered=lambda _: heard.extend(updates(client))
        )
        await trio.testing.wait_all_tasks_blocked()
    (sent,) = agent.transcript.of(method, "request")
    assert "replayFrom" not in sent.params
    kinds = [each["sessionUpdate"] for each in updates(client)]
    if not replays:
        assert kinds == ["state_update"]
    elif method == "session/load":
        assert kinds == ["agent_message_chunk", "replay_complete", "state_update"]
    else:
        assert kinds == ["replay_complete", "state_update", "notice"]
    assert {"sessionUpdate": "state_update", "state": "idle"} in heard  # before the answer


async def test_a_prompt_of_a_repeated_key_runs_once(chain):
    agent = agent_of(1, turns=[["one"], ["two"], ["three"]])
    async with chain(V1V2(1), agent, strict=True) as client:
        sessions = [await opened(client, 2)]
        sessions.append((await client.request("session/new", {"cwd": "/"}))["sessionId"])
        ids = []
        for session, key in [(0, "a"), (0, "A"), (0, "a"), (1, "a"), (0, None), (0, None)]:
            prompt = {"sessionId": sessions[session], "prompt": [], "idempotencyKey": key}
            ids.append((await client.request("session/prompt", prompt))["messageId"])
            await trio.testing.wait_all_tasks_blocked()
    assert ids[2] == ids[0] != ids[1]
    asked = [each.params for each in agent.transcript.of("session/prompt", "request")]
    keys = [(sessions.index(each["sessionId"]), each["idempotencyKey"]) for each in asked]
    assert keys == [(0, "a"), (0, "A"), (1, "a"), (0, None), (0, None)]


@pytest.mark.parametrize("key", ["", "x" * 256, 1])
async def test_a_key_of_a_prompt_that_is_not_one_is_an_error(chain, key):
    agent = agent_of(1)
    async with chain(V1V2(1), agent) as client:
        prompt = {"sessionId": await opened(client, 2), "prompt": [], "idempotencyKey": key}
        with pytest.raises(RequestError, match="idempotencyKey: 1 to 255") as refused:
            await client.request("session/prompt", prompt)
    assert refused.value.code == -32602
    assert not agent.transcript.of("session/prompt", "request")


async def test_updates_after_a_replay_wait_until_it_is_complete(chain):
    agent = agent_of(1, capabilities={"loadSession": True})

    async def load(params):
        agent.say(params["sessionId"], "history")
        agent.endpoint.start_soon(go_on, params["sessionId"])
        return {}

    async def go_on(session):  # at once after the answer
        agent.say(session, "live")

    agent.handlers["session/load"] = load
    params = {"sessionId": "s", "cwd": "/work", "replayFrom": {"type": "start"}}
    async with chain(V1V2(1), agent, strict=True) as client:
        await client.initialize(version=2)
        await client.request("session/resume", params)
        await trio.testing.wait_all_tasks_blocked()
    kinds = [each["sessionUpdate"] for each in updates(client)]
    assert kinds == [
        "agent_message_chunk",
        "replay_complete",
        "state_update",
        "agent_message_chunk",
    ]


async def test_an_agent_of_version_1_without_list_and_close_has_them_in_version_2(chain):
    agent = agent_of(1)
    cancelled = trio.Event()
    agent.handlers["session/cancel"] = lambda params: cancelled.set()
    async with chain(V1V2(1), agent, strict=True) as client:
        session = await opened(client, 2)
        assert await client.request("session/list", {}) == {"sessions": []}
        assert await client.request("session/close", {"sessionId": session}) == {}
        await cancelled.wait()


@pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create"])
async def test_what_a_client_of_version_2_does_not_have_is_an_error_with_the_name(chain, method):
    agent = agent_of(1)
    errors = []

    async def ask(session):
        try:
            await agent.endpoint.request(method, {"sessionId": session})
        except RequestError as exc:
            errors.append((exc.code, exc.message[:7]))

    agent.turns = [[ask]]
    async with chain(V1V2(1), agent, strict=True) as client:
        await client.prompt_turn(await opened(client, 2), "hi")
    assert errors == [(-32601, "v1_v2: ")]


class Sees(Proxy):
    """Notes the version that it sees, and answers a command."""

    def __init__(self):
        self.versions, self.methods = [], []

    @on("session/prompt")
    async def prompt(self, params, forward):
        self.versions.append(self.protocol_version)
        return await forward()

    @slash("name", "Its name")
    async def name(self, session, arguments):
        return "I am a proxy"


@pytest.mark.parametrize("version", [1, 2])
async def test_proxies_on_each_side_see_the_version_of_their_side(chain, version):
    before, behind = Sees(), Sees()
    agent = agent_of(3 - version, turns=[["Hello"]])
    async with chain(before, V1V2(3 - version), behind, agent, strict=True) as client:
        session = await opened(client, version)
        await client.prompt_turn(session, "hi")
    assert (before.versions, behind.versions) == ([version], [3 - version])
    assert client.transcript.text() == "Hello"


@pytest.mark.parametrize("version", [1, 2])
async def test_a_slash_command_of_a_proxy_behind_it_is_answered(chain, version):
    async with chain(V1V2(3 - version), Sees(), agent_of(3 - version), strict=True) as client:
        session = await opened(client, version)
        end = await client.prompt_turn(session, "/name")
    assert end["stopReason"] == "end_turn"
    assert "I am a proxy" in json.dumps(updates(client))


async def test_a_slash_command_in_a_turn_is_answered_at_once(chain):
    agent, go_on = agent_of(2), trio.Event()

    async def wait(session):
        await go_on.wait()

    agent.turns = [["begun", wait]]
    async with chain(V1V2(2), Sees(), agent, strict=True) as client, trio.open_nursery() as tasks:
        session = await opened(client, 1)
        tasks.start_soon(client.prompt, session, "go")
        await client.transcript.wait("session/update agent_message_chunk")
        with trio.fail_after(10):
            assert (await client.prompt(session, "/name"))["stopReason"] == "end_turn"
        go_on.set()


async def test_two_of_them_give_the_client_what_the_agent_says(chain):
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit", "kind": "edit"}
    diff = {"type": "diff", "path": "/a.txt", "oldText": "one\n", "newText": "two"}
    steps = [
        {**call, "content": [diff], "_meta": {"kept": 1}, "unknown": [1.50, None]},
        {"sessionUpdate": "plan", "entries": []},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
    ]
    agent = agent_of(1, turns=[steps])
    async with chain(V1V2(2), V1V2(1), agent, strict=True) as client:
        session = await opened(client, 1)
        await client.prompt(session, "hi")
    assert updates(client) == steps


async def test_with_the_same_version_everything_passes_unchanged(chain):
    agent = FakeAgent(turns=[["Hello"]])
    async with chain(V1V2(), agent, strict=True) as client:
        session = await opened(client, 1)
        assert await client.prompt(session, "hi") == {"stopReason": "end_turn"}
    assert "messageId" not in updates(client)[0]


@pytest.mark.parametrize("version", [1, 2])
async def test_an_agent_that_refuses_both_versions_is_an_error_with_the_name(chain, version):
    def refuse(params):
        raise RequestError(-32602, f"unsupported version {params['protocolVersion']}")

    async with chain(V1V2(3 - version), FakeAgent({"initialize": refuse})) as client:
        with pytest.raises(RequestError, match=f"v1_v2: the agent refuses version {3 - version}"):
            await client.initialize(version=version)


async def test_a_proxy_of_this_process_behind_it_is_initialized_again(chain):
    sees = Sees()
    async with chain(V1V2(), sees, agent_of(2)) as client:
        await client.prompt(await opened(client, 1), "hi")
    assert sees.versions == [2]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("named", [True, False], ids=["named", "asked"])
@pytest.mark.parametrize("answer", [None, [], "no", 5])
async def test_an_answer_to_initialize_that_is_no_object_is_an_error_with_the_name(
    chain, version, named, answer
):
    agent = FakeAgent(handlers={"initialize": lambda params: answer})
    async with chain(V1V2(3 - version if named else None), agent, strict=True) as client:
        with pytest.raises(RequestError, match="v1_v2: the agent's answer to initialize"):
            await client.initialize(version=version)


async def test_states_of_an_agent_of_version_1_do_not_end_the_turn_of_version_2(chain):
    idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    agent = agent_of(1)

    async def prompt(params):
        agent.update("session-1", idle)
        agent.say("session-1", "more")
        return {"stopReason": "refusal"}

    agent.handlers["session/prompt"] = prompt
    async with chain(V1V2(1), agent, strict=True) as client:
        await client.prompt_turn(await opened(client, 2), "hi")
    states = [each["state"] for each in updates(client, "state_update")]
    assert states == ["running", "idle"]
    assert updates(client)[-1]["stopReason"] == "refusal"


async def test_an_agent_that_speaks_neither_is_an_error_with_the_name(chain):
    agent = FakeAgent()
    agent.handlers["initialize"] = lambda params: {"protocolVersion": 7}
    async with chain(V1V2(2), agent) as client:
        with pytest.raises(RequestError, match="v1_v2: the agent speaks version 7, not 2"):
            await client.initialize()


async def test_tool_content_in_chunks_and_terminals_are_shown_in_version_1(chain):
    text = {"type": "content", "content": {"type": "text", "text": "one"}}
    steps = [
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "Run"},
        {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": text},
        {"sessionUpdate": "terminal_update", "terminalId": "t", "command": "ls"},
        {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": "c",
            "content": {"type": "terminal", "terminalId": "t"},
        },
        {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "YS50eHQK" * 200},
        {"sessionUpdate": "terminal_update", "terminalId": "t", "exitStatus": {"exitCode": 0}},
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "cancelled"},
    ]
    async with chain(V1V2(2), agent_of(2, turns=[steps]), strict=True) as client:
        await client.prompt(await opened(client, 1), "hi")
    first, *others = updates(client)
    assert first == {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Run"}
    assert others[0]["content"] == [text]
    assert others[1]["content"][1]["content"]["text"] == "```console\n$ ls\n```"
    assert "a.txt\na.txt" in others[2]["content"][1]["content"]["text"]
    assert others[3]["content"][1]["content"]["text"].endswith("\n[exit code 0]\n```")
    assert others[4] == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c",
        "status": "failed",
    }


async def test_a_whole_message_is_the_chunks_that_are_new(chain):
    def block(text):
        return {"type": "text", "text": text}

    whole = {"sessionUpdate": "agent_message", "messageId": "m"}
    steps = [
        {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": block("one")},
        {**whole, "content": [block("one, "), block("two")]},
        {**whole, "content": [block("three")]},
        {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": block("!")},
        {**whole, "content": None},
    ]
    async with chain(V1V2(2), agent_of(2, turns=[steps]), strict=True) as client:
        await client.prompt(await opened(client, 1), "hi")
    told = [(each["messageId"], each["content"]["text"]) for each in updates(client)]
    assert told == [("m", "one"), ("m", ", "), ("m", "two"), ("m#1", "three"), ("m#1", "!")]


async def test_a_notice_is_a_text_for_a_client_that_does_not_know_it(chain):
    notice = {"sessionUpdate": "notice", "severity": "info", "title": "Hot", "description": "90°"}
    async with chain(V1V2(2), agent_of(2, turns=[[notice]]), strict=True) as client:
        await client.prompt(await opened(client, 1), "hi")
    assert client.transcript.text() == "\n\n[Hot: 90°]\n\n"
