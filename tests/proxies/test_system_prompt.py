from __future__ import annotations

import os

import pytest

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.system_prompt import SystemPrompt

APPEND = {"sessionCapabilities": {"systemPrompt": {}}}
OVERRIDE = {"sessionCapabilities": {"systemPrompt": {"mode": {"override": {}}}}}
OURS = {"type": "text", "text": "Be kind."}
THEIRS = {"type": "text", "text": "Be brief."}
NEW = {"cwd": "/work", "mcpServers": []}


async def opened_with(chain, proxy, capabilities, *, version=1, method="session/new", **params):
    """The `systemPrompt` that the agent gets."""
    agent = FakeAgent(capabilities=capabilities, handlers={"session/load": lambda params: {}})
    async with chain(proxy, agent) as client:
        await client.initialize(version=version)
        await client.request(method, NEW | params)
    return agent.transcript.of(method, "request")[0].params.get("systemPrompt")


async def prompts(chain, proxy, capabilities=()):
    agent = FakeAgent(capabilities=dict(capabilities))
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "one")
        await client.prompt(session, "two")
    found = agent.transcript.of("session/prompt", "request")
    return [[block["text"] for block in heard.params["prompt"]] for heard in found]


async def test_an_agent_that_takes_it_gets_it_with_the_session(chain):
    proxy = SystemPrompt("Be kind.")
    expected = {"mode": "append", "content": [OURS]}

    assert await opened_with(chain, proxy, APPEND) == expected
    assert await prompts(chain, proxy, APPEND) == [["one"], ["two"]]
    loaded = await opened_with(chain, proxy, APPEND, method="session/load", sessionId="s")
    assert loaded == expected


async def test_version_2_has_the_capability_elsewhere(chain):
    capabilities = {"session": {"systemPrompt": {}}}

    found = await opened_with(chain, SystemPrompt("Be kind."), capabilities, version=2)

    assert found == {"mode": "append", "content": [OURS]}


async def test_the_clients_system_prompt_is_kept_unless_overridden(chain):
    theirs = {"mode": "append", "content": [THEIRS]}

    appended = await opened_with(chain, SystemPrompt("Be kind."), APPEND, systemPrompt=theirs)
    overriding = SystemPrompt("Be kind.", mode="override")
    overridden = await opened_with(chain, overriding, OVERRIDE, systemPrompt=theirs)

    assert appended == {"mode": "append", "content": [THEIRS, OURS]}
    assert overridden == {"mode": "override", "content": [OURS]}


async def test_instructions_are_appended_where_the_agent_cannot_override(chain):
    found = await opened_with(chain, SystemPrompt("Be kind.", mode="override"), APPEND)

    assert found == {"mode": "append", "content": [OURS]}


async def test_a_prompt_that_fails_has_not_brought_it(chain):
    agent = FakeAgent(turns=[[RequestError(-32000, "log in first")]])
    async with chain(SystemPrompt("Be kind."), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with pytest.raises(RequestError, match="log in first"):
            await client.prompt(session, "one")
        await client.prompt(session, "two")

    (_, second) = agent.transcript.of("session/prompt", "request")
    assert [block["text"] for block in second.params["prompt"]] == ["Be kind.", "two"]


async def test_a_fork_of_a_session_with_only_a_command_still_gets_it(chain):
    agent = FakeAgent(handlers={"session/fork": lambda params: {"sessionId": "fork"}})
    async with chain(SystemPrompt("Be kind."), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "/compact")
        await client.request("session/fork", {"sessionId": session, "cwd": "/", "mcpServers": []})
        await client.prompt("fork", "hi")

    heard = [each.params["prompt"] for each in agent.transcript.of("session/prompt", "request")]
    assert [[block["text"] for block in blocks] for blocks in heard] == [
        ["/compact"],
        ["Be kind.", "hi"],
    ]


@pytest.mark.parametrize(
    ("history", "is_first"),
    [(["/compact"], True), (["/compact", "hi"], False), (["hi", "/compact"], False)],
)
async def test_a_session_that_is_loaded_with_only_commands_gets_it(chain, history, is_first):
    """Some clients start the agent anew for each prompt."""

    def load(params):
        for said in history:
            content = {"type": "text", "text": said}
            agent.update("s", {"sessionUpdate": "user_message_chunk", "content": content})
        return {}

    agent = FakeAgent(handlers={"session/load": load})
    async with chain(SystemPrompt("Be kind."), agent) as client:
        await client.initialize()
        await client.request("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []})
        await client.prompt("s", "go on")

    (heard,) = agent.transcript.of("session/prompt", "request")
    texts = [block["text"] for block in heard.params["prompt"]]
    assert texts == [*(["Be kind."] if is_first else []), "go on"]


async def test_another_agent_may_be_left_alone(chain):
    found = await prompts(chain, SystemPrompt("Be kind.", otherwise="skip"))

    assert found == [["one"], ["two"]]


async def test_a_link_leads_to_a_file_of_the_project_or_of_the_user(chain, tmp_path):
    """An agent in a sandbox can replace the file in its project by a link to a key."""
    project, key = tmp_path / "project", tmp_path / "key"
    (project / ".git").mkdir(parents=True)
    key.write_text("a private key")
    (project / "AGENTS.md").write_text("of the project")
    file = project / "rules.md"
    users = tmp_path / "rules.md"
    users.symlink_to(key)
    agent = FakeAgent(capabilities=APPEND)

    async with chain(SystemPrompt(file=file), agent) as client:
        await client.initialize()
        file.symlink_to("AGENTS.md")
        await client.new_session(str(project))
        file.unlink()
        for path in (key, "/dev/zero"):
            file.symlink_to(path)
            with pytest.raises(RequestError, match=r"rules.md cannot be read: it is a link that"):
                await client.new_session(str(project))
            file.unlink()
        os.mkfifo(file)
        with pytest.raises(RequestError, match=r"rules.md cannot be read: it is a named pipe"):
            await client.new_session(str(project))
    async with chain(SystemPrompt(file=users), agent) as client:
        await client.initialize()
        await client.new_session(str(project))

    assert instructions(agent) == ["of the project", "a private key"]


async def test_a_file_is_read_for_every_session(chain, tmp_path):
    file = tmp_path / "rules.md"
    file.write_text("One\n")
    agent = FakeAgent(capabilities=APPEND)
    async with chain(SystemPrompt("First.", file=file), agent) as client:
        await client.initialize()
        await client.new_session("/work")
        file.write_text("Two\n")
        await client.new_session("/work")
        file.unlink()
        with pytest.raises(RequestError):
            await client.new_session("/work")

    assert instructions(agent) == ["First.\n\nOne", "First.\n\nTwo"]


def test_there_must_be_instructions():
    with pytest.raises(ValueError, match="give `text` or `file`"):
        SystemPrompt()


def chunk(text):
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "user_message_chunk", "content": content}


@pytest.mark.parametrize(
    ("replayed", "heard"),
    [
        ([chunk("Be brief."), chunk("hi")], [chunk("hi")]),
        ([chunk("Be brief.\n\nhi")], [chunk("hi")]),
        ([chunk("Be"), chunk("hi Be brief.")], [chunk("Be"), chunk("hi Be brief.")]),
        (
            [{**chunk(""), "content": {"type": "image", "data": "AA"}}],
            [{**chunk(""), "content": {"type": "image", "data": "AA"}}],
        ),
    ],
)
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_replayed_instructions_are_not_shown(chain, method, replayed, heard):
    def reopen(params):
        for update in replayed:
            agent.update("s", update)
        return {}

    agent = FakeAgent(handlers={method: reopen})
    async with chain(SystemPrompt(text="Be brief."), agent) as client:
        await client.initialize()
        await client.request(method, {"sessionId": "s", "cwd": "/", "mcpServers": []})
        assert client.transcript.updates() == heard


async def test_instructions_repeated_by_a_version_2_agent_are_not_shown(chain):
    async def echo(session):
        (prompt,) = agent.transcript.of("session/prompt", "request")
        message = {"sessionUpdate": "user_message", "messageId": "m"}
        agent.update(session, {**message, "content": prompt.params["prompt"]})

    agent = FakeAgent(turns=[[echo]])
    async with chain(SystemPrompt(text="Be brief."), agent) as client:
        await client.initialize(version=2)
        await client.prompt_turn(await client.new_session("/work"), "hi")
        _, echoed, _ = client.transcript.updates()
        assert echoed["content"] == [{"type": "text", "text": "hi"}]


async def test_nothing_is_taken_out_where_nothing_was_put_in(chain):
    agent = FakeAgent(turns=[[chunk("Be brief.")]])
    async with chain(SystemPrompt(text="Be brief.", otherwise="skip"), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")
        assert client.transcript.updates() == [chunk("Be brief.")]


async def given_by_client(chain, proxy, capabilities=(), **params):
    """What `initialize` announces, and the prompts and the set-up that the agent gets."""
    agent = FakeAgent(capabilities=dict(capabilities))
    async with chain(proxy, agent) as client:
        result = await client.initialize()
        session = (await client.request("session/new", NEW | params))["sessionId"]
        await client.prompt(session, "one")
        await client.prompt(session, "two")
    prompts = agent.transcript.of("session/prompt", "request")
    texts = [[block["text"] for block in heard.params["prompt"]] for heard in prompts]
    setup = agent.transcript.of("session/new", "request")[0].params
    return result["agentCapabilities"].get("sessionCapabilities"), texts, setup


@pytest.mark.parametrize(
    ("text", "first"), [("", "Be brief."), ("Be kind.", "Be brief.\n\nBe kind.")]
)
async def test_what_the_client_gives_comes_before_the_first_prompt(chain, text, first):
    proxy = SystemPrompt(text, of_client=True)
    theirs = {"mode": "append", "content": [THEIRS]}
    announced, texts, setup = await given_by_client(chain, proxy, systemPrompt=theirs)

    assert announced == {"systemPrompt": {}}
    assert texts == [[first, "one"], ["two"]]
    assert setup == NEW


async def test_what_the_client_gives_is_not_changed_for_an_agent_that_takes_it(chain):
    theirs = {"mode": "append", "content": [THEIRS], "_meta": {"a": 1}}
    found = await given_by_client(chain, SystemPrompt(of_client=True), APPEND, systemPrompt=theirs)

    assert found == ({"systemPrompt": {}}, [["one"], ["two"]], NEW | {"systemPrompt": theirs})


async def test_a_system_prompt_that_is_no_text_is_an_error(chain):
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    with pytest.raises(RequestError, match=r"system_prompt: .* only a text"):
        await given_by_client(
            chain,
            SystemPrompt(of_client=True),
            systemPrompt={"mode": "append", "content": [image]},
        )


def test_of_client_and_skip_exclude_each_other():
    with pytest.raises(ValueError, match="otherwise: skip"):
        SystemPrompt(of_client=True, otherwise="skip")


def instructions(agent: FakeAgent) -> list[str]:
    """The text that the agent got with each session."""
    return [
        heard.params["systemPrompt"]["content"][0]["text"]
        for heard in agent.transcript.of("session/new", "request")
    ]
