"""What `v1_v2` does with each request, its error, its cancellation and batches, in both directions:
the table of methods in docs/adapters-v1-v2.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio
import trio.testing
from support.raw_json import dumps

from conductor.proxy import Proxy, RawMessage, RequestError, on
from conductor.schema import METHODS_BY_VERSION
from conductor.testing import FakeAgent
from proxies.v1_v2 import V1V2

PAGE = (Path(__file__).parents[3] / "docs" / "adapters-v1-v2.md").read_text()
OTHER_PAYLOAD = b'{"sessionId":"s","x":{"n":1.50,"huge":1e400,"u":"\\ud800"},"_meta":{"a":null}}'
ODD_ERRORS = [(-32000, "log in", {"why": [1.5]}), (7, "", None), (-32002, "none", "é"), (0, "x", 0)]
TEXT = [{"type": "text", "text": "hi"}]
SETUP = {"cwd": "/work", "mcpServers": []}


def same_methods(source):
    """The requests whose row says that they are the same in both versions, apart from those that
    one of the versions answers in a row of its own."""
    rows = re.findall(r"^\| (.*?) \| the same \| same \|", PAGE, flags=re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    names |= {"session/list", "session/close"}
    known = METHODS_BY_VERSION[1].values()
    return sorted(
        each.name
        for each in known
        if each.name in names and each.source in (source, "both") and each.kind == "request"
    )


class Seen(Proxy):
    """Keeps the messages of a method as they are written."""

    def __init__(self):
        self.payloads = {}

    @on("*")
    async def see(self, message: RawMessage):
        self.payloads.setdefault((message.kind, message.method), []).append(message.payload)


def agent_of(version, **options):
    """An agent of this version, that can do everything."""
    session = {name: {} for name in ("list", "resume", "close", "delete", "fork")}
    capabilities = {
        1: {"loadSession": True, "sessionCapabilities": session, "auth": {"logout": {}}},
        2: {"session": {}},
    }
    return FakeAgent(**{"capabilities": capabilities[version], **options})


async def opened(client, version):
    await client.initialize(version=version)
    return (await client.request("session/new", SETUP))["sessionId"]


def updates(client, kind):
    return [each for each in client.transcript.updates() if each["sessionUpdate"] == kind]


@pytest.mark.parametrize("version", [1, 2])
async def test_requests_that_are_the_same_keep_their_bytes(chain, version):
    agent, before, behind = agent_of(3 - version), Seen(), Seen()
    to_agent, to_client = same_methods("client"), same_methods("agent")
    assert {"session/list", "session/delete", "auth/status", "providers/set"} <= {*to_agent}
    agent.handlers |= {method: lambda params: {"y": 2.50} for method in to_agent}
    async with chain(before, V1V2(3 - version), behind, agent, strict=True) as client:
        client.handlers |= {method: lambda params: {"z": 1} for method in to_client}
        await client.initialize(version=version)
        for method in to_agent:
            assert await client.request(method, OTHER_PAYLOAD) == {"y": 2.5}
        for method in to_client:
            assert await agent.endpoint.request(method, OTHER_PAYLOAD) == {"z": 1}

    for method in (*to_agent, *to_client):
        for kind in ("request", "response"):
            assert before.payloads[kind, method] == behind.payloads[kind, method], method
        assert before.payloads["request", method] == [OTHER_PAYLOAD]


CONVERTED = {
    1: {
        "authenticate": "auth/login",
        "logout": "auth/logout",
        "session/new": "session/new",
        "session/fork": "session/fork",
        "session/load": "session/resume",
        "session/resume": "session/resume",
        "session/set_mode": "session/set_config_option",
        "session/set_config_option": "session/set_config_option",
    },
    2: {
        "auth/login": "authenticate",
        "auth/logout": "logout",
        "session/new": "session/new",
        "session/fork": "session/fork",
        "session/resume": "session/resume",
        "session/set_config_option": "session/set_mode",
    },
}
"""The client's method, and the agent's, by the version of the client."""
CODE_OPTION = {"category": "mode", "name": "Mode", "type": "select", "currentValue": "code"}


@pytest.mark.parametrize("version", [1, 2])
async def test_converted_requests_keep_members_that_no_schema_knows(chain, version):
    agent, methods = agent_of(3 - version), CONVERTED[version]
    answer = {"sessionId": "s", "_meta": {"b": [None]}, "y": 2}
    if version == 1:
        answer["configOptions"] = [{**CODE_OPTION, "configId": "m", "options": []}]
    else:
        answer["modes"] = {"currentModeId": "code", "availableModes": [{"id": "code", "name": "C"}]}
    agent.handlers |= dict.fromkeys(methods.values(), lambda params: answer)
    params = {**SETUP, "sessionId": "s", "methodId": "m", "modeId": "code", "value": "code"}
    params |= {"configId": "m" if version == 1 else "mode", "_meta": {"a": [None]}, "x": 1}
    async with chain(V1V2(3 - version), agent, strict=True) as client:
        await opened(client, version)
        for method, converted in methods.items():
            result = await client.request(method, params)
            assert (result["_meta"], result["y"]) == (answer["_meta"], 2), method
            seen = agent.transcript.of(converted, "request")[-1].params
            assert (seen["_meta"], seen["x"]) == (params["_meta"], 1), method


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda error: str(error[0]))
async def test_errors_keep_code_message_and_data(chain, version, error):
    def fail(params):
        raise RequestError(*error)

    names = {1: ("authenticate", "logout"), 2: ("auth/login", "auth/logout")}
    methods = ("session/set_config_option", "session/list", "session/fork", "session/resume")
    agent = agent_of(3 - version)
    agent.handlers |= dict.fromkeys((*methods, *names[3 - version], "_x/own"), fail)
    async with chain(V1V2(3 - version), agent, strict=True) as client:
        client.handlers["session/request_permission"] = fail
        session = await opened(client, version)
        for method in (*methods, *names[version], "_x/own"):
            with pytest.raises(RequestError) as caught:
                await client.request(method, {**SETUP, "sessionId": session})
            assert (caught.value.code, caught.value.message, caught.value.data) == error, method
        with pytest.raises(RequestError) as caught:
            await agent.ask(session, {"toolCallId": "1", "title": "Edit"})
        assert (caught.value.code, caught.value.message, caught.value.data) == error


@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda error: str(error[0]))
async def test_an_error_of_a_prompt_is_a_state_and_the_other_way_round(chain, error):
    members = {"code": error[0], "message": error[1]}
    members |= {} if error[2] is None else {"data": error[2]}
    async with chain(V1V2(1), agent_of(1, turns=[[RequestError(*error)]]), strict=True) as client:
        end = await client.prompt_turn(await opened(client, 2), "hi")
        assert (end["stopReason"], end["error"]) == ("error", members)

    idle = {"state": "idle", "stopReason": "error", "error": members}
    turn = [{"sessionUpdate": "state_update", "state": "running"}]
    turn += [{"sessionUpdate": "state_update", **idle}]
    async with chain(V1V2(2), agent_of(2, turns=[turn]), strict=True) as client:
        with pytest.raises(RequestError) as caught:
            await client.prompt(await opened(client, 1), "hi")
        assert (caught.value.code, caught.value.message, caught.value.data) == error


async def test_what_an_agent_of_version_1_cannot_do_is_an_error_with_the_name(chain):
    async with chain(V1V2(1), FakeAgent(capabilities={"loadSession": True})) as client:
        session = await opened(client, 2)
        replayed = {"sessionId": session, "cwd": "/work", "replayFrom": {"type": "_mark"}}
        for method, params, code, text in (
            ("auth/logout", {}, -32601, "cannot log out"),
            ("terminal/cancel", {"sessionId": session, "terminalId": "t"}, -32601, "cannot cancel"),
            ("session/resume", replayed, -32602, "replayFrom"),
        ):
            with pytest.raises(RequestError, match=f"v1_v2: .*{text}") as caught:
                await client.request(method, params)
            assert caught.value.code == code


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", ["session/new", "session/fork"])
@pytest.mark.parametrize("answer", [None, {}, {"sessionId": 5}])
async def test_a_new_session_without_an_id_is_an_error_with_the_name(
    chain, version, method, answer
):
    agent = agent_of(3 - version, handlers={method: lambda params: answer})
    async with chain(V1V2(3 - version), agent) as client:
        await client.initialize(version=version)
        with pytest.raises(RequestError, match=f"v1_v2: .* {method} has no `sessionId`"):
            await client.request(method, {"sessionId": "s", **SETUP})


async def test_a_mode_that_the_agent_does_not_have_is_an_error_with_the_name(chain):
    async with chain(V1V2(2), agent_of(2), strict=True) as client:
        session = await opened(client, 1)
        with pytest.raises(RequestError, match="v1_v2: the agent has no option that is a mode"):
            await client.request("session/set_mode", {"sessionId": session, "modeId": "x"})


# -- cancellation ----------------------------------------------------------------------------------


async def test_a_cancelled_prompt_of_version_1_is_a_cancelled_turn_of_version_2(chain):
    agent = agent_of(2)
    cancelled = trio.Event()
    agent.handlers["session/cancel"] = lambda params: cancelled.set()

    async def wait(session):
        await cancelled.wait()

    agent.turns = [["begun", wait, {"stopReason": "cancelled"}]]
    async with chain(V1V2(2), agent, strict=True) as client:
        session = await opened(client, 1)
        prompt = {"sessionId": session, "prompt": TEXT}
        line = {"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt}
        client.send_line(dumps(line))
        await client.transcript.wait("session/update agent_message_chunk")
        client.notify("$/cancel_request", {"requestId": "p"})
        await agent.transcript.wait("session/cancel")
        await (
            trio.testing.wait_all_tasks_blocked()
        )  # the end of the chain would cancel a turn that still runs
    (told,) = agent.transcript.of("session/cancel")
    assert told.params == {"sessionId": session}


async def test_a_prompt_that_version_1_answers_as_cancelled_is_a_cancelled_turn(chain):
    agent = agent_of(1, turns=[[RequestError(-32800, "cancelled")]])
    async with chain(V1V2(1), agent, strict=True) as client:
        end = await client.prompt_turn(await opened(client, 2), "hi")
    assert (end["stopReason"], "error" in end) == ("cancelled", False)


async def test_prompts_during_a_turn_end_with_one_state(chain):
    """An agent of version 1 gets them as they come; the session is idle after the last answer."""
    agent, first, second = agent_of(1), trio.Event(), trio.Event()

    async def answer(params):
        await (first if params["prompt"][0]["text"] == "one" else second).wait()
        return {"stopReason": "end_turn" if second.is_set() else "max_tokens"}

    agent.handlers["session/prompt"] = answer
    async with chain(V1V2(1), agent, strict=True) as client:
        session = await opened(client, 2)
        for text in ("one", "two"):
            await client.prompt(session, text)
        await agent.transcript.wait("session/prompt?", count=2)
        first.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [each["state"] for each in updates(client, "state_update")] == ["running"] * 2
        second.set()
        await client.transcript.wait("session/update state_update", count=3)
    *_, idle = updates(client, "state_update")
    assert (idle["state"], idle["stopReason"]) == ("idle", "end_turn")
    ids = [each["messageId"] for each in updates(client, "user_message")]
    assert len({*ids}) == 2


# -- batches ---------------------------------------------------------------------------------------
