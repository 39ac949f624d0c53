"""Both sides of a recording, with proxies between them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import trio
from support.record_agents import DIRECTORY

from conductor.proxy import Proxy, RequestError, on, on_permission, on_prompt, on_text, tool
from conductor.proxy.peers import text
from conductor.testing import RecordedSession, Recording
from conductor.tracing.trace_file import TraceFile


class Unchanging(Proxy):
    @on_text
    async def see(self, session, text):
        return None


class Shout(Proxy):
    @on_text
    async def shout(self, session, text):
        return text.upper()


class Deny(Proxy):
    @on_permission
    async def deny(self, session, asked, forward):
        return asked.deny()


class Remind(Proxy):
    @on_prompt
    async def remind(self, session, prompt, forward):
        prompt.blocks.append(text("Be kind."))
        return await forward()


class Search(Proxy):
    @tool
    async def look(self, key: str) -> str:
        """Look a key up."""
        return f"{key} is found"


class Find(Search):
    @tool
    async def look(self, key: str) -> str:
        """Look a key up."""
        return f"{key} is lost"


async def differences(acp_chain, session, *proxies):
    async with acp_chain(*proxies, session.agent, bridged=False, strict=True) as client:
        await session.play(client)
    return session.differences()


@pytest.mark.parametrize("name", Recording.names())
async def test_a_proxy_that_changes_nothing_makes_no_difference(acp_chain, recorded, name):
    assert await differences(acp_chain, recorded(name), Unchanging()) == []


@pytest.mark.parametrize("name", Recording.names())
async def test_changed_texts_of_an_agent_are_differences_at_the_client(acp_chain, recorded, name):
    found = await differences(acp_chain, recorded(name), Shout())

    assert [line.split(" session/update ")[1] for line in found[:4]] == [
        '- update.content.text: "Hello."',
        '+ update.content.text: "HELLO."',
        '- update.content.text: "Done."',
        '+ update.content.text: "DONE."',
    ]
    assert all(line.startswith("chain → client: #") for line in found)


async def test_a_changed_prompt_is_a_difference_at_the_agent(acp_chain, recorded):
    found = await differences(acp_chain, recorded("opencode"), Remind())

    reminder = '+ prompt[1]: {"type": "text", "text": "Be kind."}'
    assert len(found) == 5
    assert found[0] == f"chain → agent: #6 session/prompt {reminder}"


async def test_a_request_that_a_proxy_answers_does_not_stop_the_session(acp_chain, recorded):
    session = recorded("opencode")

    found = await differences(acp_chain, session, Deny())

    gone = [line for line in found if line.startswith("chain → client: - #")]
    assert [line.split()[5] for line in gone] == ["session/request_permission"] * 2
    assert session.agent.transcript.labels.count("session/prompt?") == 5


async def test_a_message_that_does_not_come_is_told(acp_chain, recorded, virtual_clock):
    class Silent(Proxy):
        @on("session/prompt")
        async def keep(self, params, forward):
            await trio.sleep_forever()

    session = recorded("opencode")
    session.timeout = 3
    async with acp_chain(Silent(), session.agent, stop_timeout=0.1) as client:
        await session.play(client)

    assert session.differences()[0] == (
        "#7 session/update agent_message_chunk did not come within 3 s"
    )
    assert "#8 answer to session/prompt did not come within 3 s" in session.differences()


async def test_a_request_of_the_agent_without_a_recorded_answer_is_refused(acp_chain, recorded):
    class Curious(Proxy):
        said = None

        @on_prompt
        async def ask(self, session, prompt, forward):
            try:
                await self.client.request("fs/read_text_file", {"sessionId": session.id})
            except RequestError as exc:
                Curious.said = str(exc)
            return await forward()

    found = await differences(acp_chain, recorded("opencode"), Curious())

    assert "fs/read_text_file: the recording opencode has none" in Curious.said
    assert len([line for line in found if "+ fs/read_text_file" in line]) == 5


async def test_a_cancelled_request_is_cancelled_again(acp_chain, recorded, tmp_path, virtual_clock):
    """A trace has only the mark of its response."""
    ends = {"from": "Client", "to": "Agent", "protocol": "acp"}
    back = {"type": "response", "from": "Agent", "to": "Client", "is_error": False}
    error = {"code": -32800, "message": "Request cancelled"}
    records = [
        {"type": "request", "ts": 0, "id": 1, "method": "initialize", "params": {}, **ends},
        {**back, "ts": 0, "id": 1, "payload": {"protocolVersion": 1}},
        {"type": "request", "ts": 1, "id": 2, "method": "session/prompt", "params": {}, **ends},
        {**back, "ts": 9, "id": 2, "is_error": True, "cancelled": True, "payload": error},
    ]
    path = tmp_path / "cancelled.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    session = recorded(path)

    assert await differences(acp_chain, session, Unchanging()) == []
    assert session.agent.transcript.labels[-2:] == ["session/prompt?", "$/cancel_request"]


async def trace_of(path, acp_chain, *proxies):
    """A trace of a chain whose agent calls a tool of a proxy over ACP."""
    from conductor.chain.build import build_components
    from conductor.chain.components import ChainSpec
    from conductor.chainfile.model import ComponentSpec
    from conductor.client.embedding import attach
    from conductor.plugins.plugin_component import PluginComponent
    from conductor.testing import FakeClient

    agent = ComponentSpec(name="agent", use="test-agent")

    def make():
        made = build_components([agent], mode="agent", mcp_bridge="auto")
        return [PluginComponent(type(each).__name__, each, "proxy") for each in proxies] + made

    trace = TraceFile(path)
    async with attach(FakeClient, ChainSpec(make), recorder=trace.recorder("test")) as attached:
        client = attached.client
        await client.initialize()
        session = await client.new_session("/")
        await client.prompt(session, 'call Search look {"key": "tea"}')
    trace.close()


@pytest.mark.slow
async def test_tools_of_a_proxy_are_called_as_in_the_trace(acp_chain, recorded, tmp_path):
    path = tmp_path / "tools.jsonl"
    await trace_of(path, acp_chain, Search())

    assert await differences(acp_chain, recorded(path), Search()) == []

    found = await differences(acp_chain, recorded(path), Find())
    assert '+ content[0].text: "tea is lost"' in "\n".join(found)


@pytest.mark.slow
def test_a_recording_beside_the_test_is_found(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(recorded): recorded('mine.jsonl')")
    (tmp_path / "mine.jsonl").write_text((DIRECTORY / "opencode.jsonl").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]

    result = subprocess.run(command, cwd="/", capture_output=True, text=True)

    assert result.returncode == 0, result.stdout


def test_a_session_is_loaded_without_pytest():
    session = RecordedSession.load("opencode")

    assert session.client_recording.labels == session.agent_recording.labels
