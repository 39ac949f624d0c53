"""Further directories of a session, for an agent that knows only one."""

from __future__ import annotations

import pytest

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.additional_directories import AdditionalDirectories

HAS = {"sessionCapabilities": {"additionalDirectories": {}}}
NEW = {"cwd": "/work", "mcpServers": []}
OTHERS = {**NEW, "additionalDirectories": ["/lib", "/work", "/docs", "/lib"]}


def strict_agent(capabilities=(), **handlers):
    """An agent that refuses members that it does not know, unless it has the capability."""

    def set_up(params):
        if "additionalDirectories" in params and not capabilities:
            raise RequestError(-32602, "Unrecognized key: additionalDirectories")
        return {"sessionId": params.get("sessionId", "s")}

    agent = FakeAgent(capabilities=dict(capabilities))
    agent.handlers |= {f"session/{name}": set_up for name in ("new", "load", "resume")}
    agent.handlers |= {"session/fork": lambda params: {**set_up(params), "sessionId": "forked"}}
    agent.handlers |= handlers
    return agent


def given(agent):
    prompts = agent.transcript.of("session/prompt", "request")
    return [[block["text"] for block in each.params["prompt"]] for each in prompts]


@pytest.mark.parametrize("version", [1, 2])
async def test_the_capability_is_announced(chain, version):
    async with chain(AdditionalDirectories(), FakeAgent(capabilities={"a": 1})) as client:
        result = await client.initialize(version=version)

    if version == 1:
        capabilities = result["agentCapabilities"]
        assert capabilities["sessionCapabilities"] == {"additionalDirectories": {}}
    else:
        capabilities = result["capabilities"]
        assert capabilities["session"]["additionalDirectories"] == {}
    assert capabilities["a"] == 1


@pytest.mark.parametrize("version", [1, 2])
async def test_the_agent_learns_of_the_directories_in_its_first_prompt(chain, version):
    agent = strict_agent()
    async with chain(AdditionalDirectories(), agent) as client:
        await client.initialize(version=version)
        await client.request("session/new", OTHERS)
        for prompt in ("/help", "one", "two"):
            await client.prompt_turn("s", prompt)

    command, (note, first), second = given(agent)
    assert (command, first, second) == (["/help"], "one", ["two"])
    assert "\n- /lib\n- /docs\n" in note
    assert "may not reach them" in note
    assert agent.transcript.of("session/new", "request")[0].params == NEW


@pytest.mark.parametrize("name", ["load", "resume", "fork"])
async def test_a_session_that_is_opened_again_has_the_directories_of_the_request(chain, name):
    agent = strict_agent()
    async with chain(AdditionalDirectories(), agent) as client:
        await client.initialize()
        session = (await client.request("session/new", OTHERS))["sessionId"]
        reopen = {**NEW, "sessionId": "s", "additionalDirectories": ["/new"]}
        session = (await client.request(f"session/{name}", reopen))["sessionId"]
        await client.prompt(session, "one")

    ((note, _),) = given(agent)
    assert "- /new\n" in note
    assert "/lib" not in note


async def test_a_session_without_further_directories_is_left_alone(chain):
    agent = strict_agent()
    async with chain(AdditionalDirectories(), agent) as client:
        await client.initialize()
        await client.request("session/new", {**NEW, "additionalDirectories": ["/work"]})
        await client.prompt("s", "one")
        await client.request("session/load", {**OTHERS, "sessionId": "s"})
        await client.request("session/load", {**NEW, "sessionId": "s"})
        await client.prompt("s", "two")

    assert given(agent) == [["one"], ["two"]]


async def test_another_spelling_of_the_sessions_directory_is_no_further_one(chain, tmp_path):
    (tmp_path / "link").symlink_to(".")
    directories = [f"{tmp_path}/link", f"{tmp_path}/"]
    agent = strict_agent()
    async with chain(AdditionalDirectories(), agent) as client:
        await client.initialize()
        session = {**NEW, "cwd": str(tmp_path), "additionalDirectories": directories}
        await client.request("session/new", session)
        await client.prompt("s", "one")

    assert given(agent) == [["one"]]


async def test_an_agent_with_the_capability_gets_them_as_they_are(chain):
    agent = strict_agent(HAS)
    async with chain(AdditionalDirectories(), agent) as client:
        result = await client.initialize()
        await client.request("session/new", OTHERS)
        await client.prompt("s", "one")

    assert result["agentCapabilities"]["sessionCapabilities"] == HAS["sessionCapabilities"]
    assert agent.transcript.of("session/new", "request")[0].params == OTHERS
    assert given(agent) == [["one"]]


async def test_what_the_agent_repeats_is_shown_without_the_text(chain):
    agent = strict_agent()

    def repeat(params):
        for block in params["prompt"]:
            chunk = {"sessionUpdate": "user_message_chunk", "content": block}
            agent.update(params["sessionId"], chunk)
        whole = {"sessionUpdate": "user_message", "content": params["prompt"]}
        agent.update(params["sessionId"], whole)
        return {"stopReason": "end_turn"}

    agent.handlers["session/prompt"] = repeat
    async with chain(AdditionalDirectories(), agent) as client:
        await client.initialize()
        await client.request("session/new", OTHERS)
        await client.prompt("s", "one")
        contents = [update["content"] for update in client.transcript.updates()]

    text = {"type": "text", "text": "one"}
    assert contents == [text, [text]]


async def test_directories_may_be_refused_instead(chain):
    agent = strict_agent()
    async with chain(AdditionalDirectories(mode="refuse"), agent) as client:
        result = await client.initialize()
        with pytest.raises(
            RequestError, match=r"additional_directories: .* cannot use /lib, /docs"
        ):
            await client.request("session/new", OTHERS)
        await client.request("session/new", NEW)

    assert "sessionCapabilities" not in result["agentCapabilities"]


@pytest.mark.parametrize("wrong", [None, "/lib", [1], [""], ["lib"], {"/lib": 1}])
async def test_what_is_no_list_of_absolute_paths_is_an_error(chain, wrong):
    agent = strict_agent()
    async with chain(AdditionalDirectories(), agent) as client:
        await client.initialize()
        with pytest.raises(RequestError, match=r"additional_directories: .* absolute paths"):
            await client.request("session/new", {**NEW, "additionalDirectories": wrong})

    assert agent.transcript.of("session/new", "request") == []
