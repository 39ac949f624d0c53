"""Sessions of an agent that cannot list or load them are kept in files."""

from __future__ import annotations

import json
import stat

import pytest
import trio

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.journal import Journal
from proxies.journal.session import OPENING
from proxies.v1_v2 import V1V2

FRAGILE = """
from contextlib import asynccontextmanager

import attrs
import trio

from conductor.proxy import on
from proxies.journal import Journal


@attrs.define
class Fragile(Journal):
    event: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def lifespan(self):
        async def watch():
            await self.event.wait()
            raise RuntimeError("worn out")

        async with Journal.lifespan(self), trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()

    @on("_break", source="client")
    async def break_(self, params: dict):
        self.event.set()
        await trio.sleep_forever()
"""
SETUP = {"cwd": "/work", "mcpServers": []}
CALL = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a.txt", "kind": "read"}
MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}
MODELS = {"currentModelId": "s", "availableModels": [{"modelId": "s"}, {"modelId": "l"}]}
MODEL = {
    "id": "llm",
    "name": "Model",
    "category": "model",
    "type": "select",
    "currentValue": "s",
    "options": [{"value": "s", "name": "S"}, {"value": "l", "name": "L"}],
}


@pytest.fixture
def journal(tmp_path):
    """Make the proxy, as each start of the conductor does."""

    def make(**options):
        return Journal(directory=tmp_path / "journal", **options)

    return make


def files(tmp_path):
    return sorted((tmp_path / "journal").glob("*/*.jsonl"))


async def talk(chain, proxy, *turns, agent=None):
    """One start of the conductor with a session of these turns; returns the id of the session."""
    agent = agent or FakeAgent(turns=[list(turn) for turn in turns])
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for number in range(len(turns)):
            await client.prompt(session, f"question {number + 1}")
    return session


def updates(client, session):
    found = client.transcript.of("session/update")
    return [each.params["update"] for each in found if each.params["sessionId"] == session]


def texts(updates):
    return [each["content"]["text"] for each in updates if "content" in each]


def given(agent):
    return [
        [block["text"] for block in each.params["prompt"]]
        for each in agent.transcript.of("session/prompt", "request")
    ]


async def test_a_session_is_listed_with_its_title_and_shown_again(chain, journal):
    session = await talk(chain, journal(), ["Hel", "lo", CALL], ["done"])

    async with chain(journal(), FakeAgent()) as client:
        result = await client.initialize()
        assert result["agentCapabilities"]["loadSession"] is True
        assert {"list", "resume", "fork", "delete"} <= {
            *result["agentCapabilities"]["sessionCapabilities"]
        }
        listed = await client.request("session/list", {})
        elsewhere = await client.request("session/list", {"cwd": "/other"})
        await client.request("session/load", {**SETUP, "sessionId": session})
        *shown, notice = updates(client, session)

    (info,) = listed["sessions"]
    assert (info["sessionId"], info["cwd"], info["title"]) == (session, "/work", "question 1")
    assert elsewhere["sessions"] == []
    assert texts(shown) == ["question 1", "Hello", "question 2", "done"]
    assert CALL in shown
    assert "The agent has not loaded this session" in notice["content"]["text"]


async def test_the_agent_gets_a_transcript_before_the_first_prompt_only(chain, journal):
    session = await talk(chain, journal(), ["Hello", CALL])
    agent = FakeAgent(turns=[["one"], ["two"]])

    async with chain(journal(), agent) as client:
        await client.initialize()
        await client.request("session/resume", {**SETUP, "sessionId": session})
        await client.prompt(session, "/help")
        await client.prompt(session, "go on")
        await client.prompt(session, "again")
        shown = updates(client, session)

    (command, (transcript, first), second) = given(agent)
    assert command == ["/help"]
    assert transcript.startswith(OPENING)
    assert "user: question 1\n\nagent: Hello\n[tool call: Read a.txt]" in transcript
    assert (first, second) == ("go on", ["again"])
    assert "has not loaded" in texts(shown)[0]
    assert "question 1" not in texts(shown)


async def test_ids_of_an_agent_that_counts_from_one_again_stay_apart(chain, journal):
    first = await talk(chain, journal(), ["one"])
    agent = FakeAgent()
    agent.turns = [["of the second"]]

    async with chain(journal(), agent) as client:
        await client.initialize()
        second = await client.new_session("/work")
        await client.prompt(second, "question")
        await client.request("session/load", {**SETUP, "sessionId": first})
        await client.prompt(first, "go on")
        client.notify("session/cancel", {"sessionId": first})
        await agent.transcript.wait("session/cancel")
        listed = await client.request("session/list", {})
        assert "of the second" in texts(updates(client, second))

    assert first == "session-1"
    assert second.startswith("session-1-")
    assert {each["sessionId"] for each in listed["sessions"]} == {first, second}
    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["sessionId"] for each in prompts] == ["session-1", "session-2"]
    assert agent.transcript.of("session/cancel")[0].params["sessionId"] == "session-2"


async def test_a_session_that_is_shown_again_has_the_settings_that_it_has_now(chain, journal):
    kept, agent = await talk(chain, journal(), ["Hello"]), FakeAgent()
    opened = {"sessionId": "s", "modes": MODES, "models": MODELS, "configOptions": [MODEL]}
    agent.handlers["session/new"] = lambda params: opened
    for method in ("session/set_mode", "session/set_model"):
        agent.handlers[method] = lambda params: {}
    changed = {**MODEL, "currentValue": "l"}

    async with chain(journal(), agent) as client:
        await client.initialize()
        load = {**SETUP, "sessionId": kept}
        await client.request("session/load", load)
        await client.request("session/set_mode", {"sessionId": kept, "modeId": "code"})
        await client.request("session/set_model", {"sessionId": kept, "modelId": "l"})
        set_by_client = await client.request("session/load", load)
        agent.update("s", {"sessionUpdate": "current_mode_update", "currentModeId": "ask"})
        agent.update("s", {"sessionUpdate": "config_option_update", "configOptions": [MODEL]})
        await client.transcript.wait("session/update config_option_update")
        told_by_agent = await client.request("session/load", load)

    models = {**MODELS, "currentModelId": "l"}
    modes = {**MODES, "currentModeId": "code"}
    assert set_by_client == {"modes": modes, "models": models, "configOptions": [changed]}
    assert told_by_agent == {"modes": MODES, "models": MODELS, "configOptions": [MODEL]}
    (asked,) = agent.transcript.of("session/set_model", "request")
    assert asked.params["sessionId"] == "s"
    assert len(agent.transcript.of("session/new", "request")) == 1


async def test_a_session_that_a_restarted_agent_has_lost_is_opened_again(chain, journal):
    lost = RequestError(-32603, "agent failed, was restarted", {"component": "agent"})
    agent = FakeAgent(turns=[["Hello"], [lost], ["again"]])

    async with chain(journal(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        with pytest.raises(RequestError, match="was restarted"):
            await client.prompt(session, "die")
        await client.request("session/load", {**SETUP, "sessionId": session})
        await client.prompt(session, "go on")
        shown = texts(updates(client, session))

    assert len(agent.transcript.of("session/new", "request")) == 2
    transcript, prompt = given(agent)[-1]
    assert transcript.startswith(OPENING)
    assert "agent: Hello" in transcript
    assert prompt == "go on"
    assert any("has not loaded" in each for each in shown)


async def test_a_restarted_agent_that_counts_from_one_again_mixes_no_sessions(chain, journal):
    agent = FakeAgent(turns=[["of the first"], ["of the second"], ["of the first"]])
    ids = iter(["s-1", "s-1", "s-2"])
    agent.handlers["session/new"] = lambda params: {"sessionId": next(ids)}
    agent.handlers["session/close"] = lambda params: {}
    agent.capabilities = {"sessionCapabilities": {"close": {}}}

    async with chain(journal(), agent) as client:
        await client.initialize()
        first = await client.new_session("/work")
        await client.prompt(first, "one")
        second = await client.new_session("/work")  # of the agent's next process
        assert second != first
        with pytest.raises(RequestError, match="has lost this session; start a new one, or load"):
            await client.prompt(first, "two")
        await client.prompt(second, "two")
        await client.request("session/load", {**SETUP, "sessionId": first})
        await client.prompt(first, "three")
        await client.request("session/close", {"sessionId": second})

    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["sessionId"] for each in prompts] == ["s-1", "s-1", "s-2"]
    assert "of the second" not in given(agent)[-1][0]
    (closed,) = agent.transcript.of("session/close", "request")
    assert closed.params["sessionId"] == "s-1"


async def test_what_a_restarted_agent_has_lost_is_closed_without_it(chain, journal):
    agent = FakeAgent(turns=[["one"]])
    agent.handlers["session/new"] = lambda params: {"sessionId": "s"}
    agent.capabilities = {"sessionCapabilities": {"close": {}}}

    async with chain(journal(), agent) as client:
        await client.initialize()
        first = await client.new_session("/work")
        await client.prompt(first, "one")
        await client.new_session("/work")
        await client.request("session/close", {"sessionId": first})
        await client.request("session/delete", {"sessionId": first})

    assert agent.transcript.of("session/close") == []


async def test_an_agent_that_lists_and_loads_is_left_alone(chain, journal, tmp_path):
    capabilities = {"loadSession": True, "sessionCapabilities": {"list": {}}}
    agent = FakeAgent(turns=[["Hello"]], capabilities=capabilities)
    async with chain(journal(), agent) as client:
        result = await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

    assert result["agentCapabilities"]["sessionCapabilities"] == {"list": {}}
    assert files(tmp_path) == []


async def test_what_the_agent_loads_itself_is_not_kept_twice(chain, journal):
    agent = FakeAgent(turns=[["Hello"]], capabilities={"loadSession": True})

    def load(params):
        agent.say(params["sessionId"], "Hello, from the agent")
        return {}

    agent.handlers["session/load"] = load
    session = await talk(chain, journal(), ["Hello"], agent=agent)
    async with chain(journal(), agent) as client:
        await client.initialize()
        await client.request("session/load", {**SETUP, "sessionId": session})
        assert texts(updates(client, session)) == ["Hello, from the agent"]
        await client.request("session/resume", {**SETUP, "sessionId": session})
        await client.prompt(session, "go on")
        assert texts(updates(client, session)) == ["Hello, from the agent"]

    assert given(agent)[-1] == ["go on"]


async def test_a_session_that_the_agent_cannot_load_after_all_comes_from_the_file(chain, journal):
    def load(params):
        raise RequestError(-32603, "I have lost it")

    agent = FakeAgent(turns=[["Hello"]], capabilities={"loadSession": True})
    session = await talk(chain, journal(), ["Hello"], agent=agent)
    agent.handlers["session/load"] = load
    async with chain(journal(), agent) as client:
        await client.initialize()
        await client.request("session/load", {**SETUP, "sessionId": session})
        assert texts(updates(client, session))[:2] == ["question 1", "Hello"]
        with pytest.raises(RequestError, match="I have lost it"):
            await client.request("session/load", {**SETUP, "sessionId": "unknown"})


async def test_a_fork_continues_apart(chain, journal):
    agent = FakeAgent(turns=[["Hello"], ["in the fork"]])
    async with chain(journal(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        fork = (await client.request("session/fork", {**SETUP, "sessionId": session}))["sessionId"]
        await client.prompt(fork, "other")
        await client.request("session/load", {**SETUP, "sessionId": session})

    assert fork != session
    assert "agent: Hello" in given(agent)[1][0]
    assert texts(updates(client, session))[-2:] == ["hi", "Hello"]
    async with chain(journal(), FakeAgent()) as client:
        await client.initialize()
        await client.request("session/load", {**SETUP, "sessionId": fork})
        assert texts(updates(client, fork))[:4] == ["hi", "Hello", "other", "in the fork"]


@pytest.mark.parametrize("capabilities", [{}, {"session": {"notices": {}}}])
async def test_the_user_and_the_agent_are_told_that_older_turns_were_not_kept(
    chain, journal, capabilities
):
    small = {"max_bytes": 65536, "transcript": 100_000}
    session = await talk(chain, journal(**small), *[["x" * 4000]] * 20)
    agent = FakeAgent()
    async with chain(journal(**small), agent) as client:
        await client.initialize(capabilities=capabilities)
        fork = (await client.request("session/fork", {**SETUP, "sessionId": session}))["sessionId"]
        for each in (session, fork):
            await client.request("session/load", {**SETUP, "sessionId": each})
            shown = [str(update) for update in updates(client, each)]
            (told,) = [
                text for text in shown if "Older turns of this session were not kept" in text
            ]
            assert ("notice" in told) is bool(capabilities)
            assert "user_message_chunk" in shown[shown.index(told) + 1]
        await client.prompt(session, "go on")

    assert "[older messages are left out]" in given(agent)[0][0]


async def test_a_deleted_session_is_gone(chain, journal, tmp_path):
    session = await talk(chain, journal(), ["Hello"])
    async with chain(journal(), FakeAgent()) as client:
        await client.initialize()
        await client.request("session/delete", {"sessionId": session})
        with pytest.raises(RequestError, match="journal: there is no such session"):
            await client.request("session/load", {**SETUP, "sessionId": session})
        with pytest.raises(RequestError, match="journal: there is no such session"):
            await client.request("session/delete", {"sessionId": session})

    assert files(tmp_path) == []


async def test_the_turn_of_a_deleted_session_ends_under_the_id_that_the_client_knows(
    chain, journal, tmp_path
):
    session, agent = await talk(chain, journal(), ["one"]), FakeAgent()
    cancelled = trio.Event()

    async def work(id):
        await cancelled.wait()
        await agent.ask(id, {"toolCallId": "1", "title": "Clean up", "kind": "edit"})
        agent.say(id, "stopped")

    agent.turns = [[work], ["again"]]
    agent.handlers["session/cancel"] = lambda params: cancelled.set()
    async with chain(journal(), agent) as client, trio.open_nursery() as nursery:
        await client.initialize()
        await client.new_session("/work")
        await client.request("session/load", {**SETUP, "sessionId": session})
        nursery.start_soon(client.prompt, session, "go on")
        await agent.transcript.wait("session/prompt?")
        await client.request("session/delete", {"sessionId": session})
        asked = await client.transcript.wait("session/request_permission?")

    assert asked.params["sessionId"] == session
    assert texts(updates(client, session))[-1] == "stopped"
    assert len(files(tmp_path)) == 0


async def test_files_are_private_and_have_no_secret_and_no_image(chain, journal, tmp_path):
    secret = "sk-ant-" + "a1B2" * 10
    agent = FakeAgent(turns=[[f"the key is {secret}"]])
    async with chain(journal(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        image = {"type": "image", "mimeType": "image/png", "data": "QUJD"}
        await client.prompt(session, [{"type": "text", "text": "look"}, image])

    (file,) = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    content = file.read_text()
    assert secret not in content
    assert "QUJD" not in content
    assert "[image: image/png]" in content


async def test_a_session_without_a_prompt_leaves_no_file(chain, journal, tmp_path):
    await talk(chain, journal())

    assert files(tmp_path) == []


async def test_a_journal_that_cannot_be_written_stops_nothing(chain, tmp_path):
    (tmp_path / "journal").write_text("a file")
    agent = FakeAgent(turns=[["Hello"]])
    async with chain(Journal(directory=tmp_path / "journal"), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        assert "Hello" in texts(updates(client, session))


async def test_prompts_that_an_agent_repeats_are_neither_kept_twice_nor_show_the_transcript(
    chain, journal, tmp_path
):
    session = await talk(chain, journal(), ["Hello"])
    agent = FakeAgent()

    def repeat(params):
        for block in params["prompt"]:
            chunk = {"sessionUpdate": "user_message_chunk", "content": block}
            agent.update(params["sessionId"], chunk)
        return {"stopReason": "end_turn"}

    agent.handlers["session/prompt"] = repeat
    async with chain(journal(), agent) as client:
        await client.initialize()
        await client.request("session/resume", {**SETUP, "sessionId": session})
        await client.prompt(session, "go on")
        assert texts(updates(client, session))[1:] == ["go on"]

    (file,) = files(tmp_path)
    prompts = [line for line in map(json.loads, file.read_text().splitlines()) if "prompt" in line]
    assert [each["prompt"][0]["text"] for each in prompts] == ["question 1", "go on"]
    assert file.read_text().count("go on") == 1


@pytest.fixture
def fragile(tmp_path):
    """A chain file with a journal that is restarted after `_break`."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    file = tmp_path / "chain.yaml"
    file.write_text(
        "version: 1\nproxies:\n- use: ./fragile.py:Fragile\n  isolate: true\n"
        f"  with: {{directory: {tmp_path / 'journal'}}}\n"
    )
    return str(file)


async def test_after_a_restart_of_the_proxy_sessions_go_on(chain, journal, fragile, tmp_path):
    first = await talk(chain, journal(), ["Hello"])
    agent = FakeAgent()
    async with chain(fragile, agent) as client:
        await client.initialize()
        second = await client.new_session("/work")
        await client.prompt(second, "before")
        await client.request("session/load", {**SETUP, "sessionId": first})
        with pytest.raises(RequestError, match="worn out"):
            await client.request("_break", {})
        await client.prompt(first, "go on")
        await client.prompt(second, "after")
        listed = await client.request("session/list", {})

    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["sessionId"] for each in prompts] == ["session-1", "session-2", "session-1"]
    assert {each["sessionId"] for each in listed["sessions"]} == {first, second}
    assert given(agent)[1][0].startswith(OPENING)
    assert given(agent)[2] == ["after"]
    assert len(files(tmp_path)) == 2


async def test_a_fork_goes_on_after_a_restart_of_the_proxy(chain, fragile):
    agent = FakeAgent()
    async with chain(fragile, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "before")
        fork = (await client.request("session/fork", {**SETUP, "sessionId": session}))["sessionId"]
        with pytest.raises(RequestError, match="worn out"):
            await client.request("_break", {})
        await client.prompt(fork, "in the fork")
        await client.prompt(session, "after")
        await client.request("session/load", {**SETUP, "sessionId": session})
        assert texts(updates(client, session))[-2:] == ["before", "after"]

    assert len(agent.transcript.of("session/new", "request")) == 2
    prompts = agent.transcript.of("session/prompt", "request")
    assert [each.params["sessionId"] for each in prompts] == ["session-1", "session-2", "session-1"]
    assert [each[-1] for each in given(agent)] == ["before", "in the fork", "after"]


async def test_behind_v1_v2_a_client_of_version_2_resumes_and_lists_the_sessions(chain, journal):
    agent = FakeAgent(turns=[["Hel", "lo", CALL], ["done"]])
    async with chain(V1V2(1), journal(), agent, strict=True) as client:
        answer = await client.initialize(version=2)
        assert {"fork", "delete"} <= {*answer["capabilities"]["session"]}
        session = (await client.request("session/new", {"cwd": "/work"}))["sessionId"]
        for number in (1, 2):
            end = await client.prompt_turn(session, f"question {number}")
            assert end["stopReason"] == "end_turn"
        live = client.transcript.text()

    agent = FakeAgent(turns=[["one"]])
    setup = {"sessionId": session, "cwd": "/work"}
    async with chain(V1V2(1), journal(), agent, strict=True) as client:
        await client.initialize(version=2)
        listed = await client.request("session/list", {})
        replayed = {**setup, "replayFrom": {"type": "start"}}
        told = []
        await client.request(
            "session/resume", replayed, answered=lambda _: told.extend(updates(client, session))
        )
        await client.transcript.wait("session/update notice")
        end = await client.prompt_turn(session, "go on")

    (info,) = listed["sessions"]
    assert (info["sessionId"], info["title"]) == (session, "question 1")
    *shown, complete, state = told  # all of it before the answer
    assert complete == {"sessionUpdate": "replay_complete"}
    assert (state["sessionUpdate"], state["state"]) == ("state_update", "idle")
    assert texts(shown) == ["question 1", "Hello", "question 2", "done"]
    assert live == "Hellodone"
    ids = [each["messageId"] for each in shown if "messageId" in each]
    assert len({*ids}) == len(ids) == 4
    assert [each["toolCallId"] for each in shown if "toolCallId" in each] == ["1"]
    (notice,) = [each for each in updates(client, session) if each["sessionUpdate"] == "notice"]
    assert notice["title"] == "The agent has not loaded this session"
    assert end["stopReason"] == "end_turn"
    assert given(agent)[0][0].startswith(OPENING)


async def test_before_v1_v2_an_agent_of_version_2_keeps_its_sessions_itself(
    chain, journal, tmp_path
):
    agent = FakeAgent(turns=[["Hello"]], capabilities={"session": {}})
    agent.handlers["session/list"] = lambda params: {"sessions": [{"sessionId": "s", "cwd": "/"}]}
    async with chain(journal(), V1V2(2), agent) as client:
        result = await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")
        listed = await client.request("session/list", {})

    assert {"list", "resume"} <= result["agentCapabilities"]["sessionCapabilities"].keys()
    assert listed == {"sessions": [{"sessionId": "s", "cwd": "/"}]}
    assert files(tmp_path) == []
