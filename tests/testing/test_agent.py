"""The test agent follows its prompts, in this process and in its own."""

from __future__ import annotations

import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from conductor.chainfile.model import ComponentSpec
from conductor.errors import ComponentExited, RequestError
from conductor.testing.agent import TestAgent
from conductor.testing.commands import COMMANDS, command_text

OWN_PROCESS = ComponentSpec(
    name="agent",
    run=(sys.executable, "-m", "conductor.testing.agent"),
    on_failure="end_chain",
)
SERVER = {
    "name": "server",
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "support" / "components" / "mcp_server.py")],
    "env": [{"name": "GIVEN", "value": "by the client"}],
}


class Talk:
    """A client and its session."""

    def __init__(self, client, session):
        self.client, self.session, self.answer = client, session, None

    def __getattr__(self, name):
        return getattr(self.client, name)

    async def say(self, text):
        """Send a prompt, and return what was said in its turn."""
        before = len(self.transcript.text())
        self.answer = await self.prompt(self.session, text)
        return self.transcript.text()[before:]


@asynccontextmanager
async def talk(chain, agent=None, *, version=1, cwd="/work", servers=()):
    async with chain(agent or TestAgent("counted")) as client:
        await client.initialize(version=version)
        yield Talk(client, await client.new_session(str(cwd), servers))


@pytest.mark.parametrize("agent", [None, OWN_PROCESS], ids=["in process", "own process"])
async def test_echo_repeats_its_text(chain, agent):
    async with talk(chain, agent) as client:
        assert await client.say("say hello") == "hello"
        assert await client.say("How are you?") == "You said: How are you?"
        assert await client.say("say one\nsay two") == "onetwo"
        assert client.answer == {"stopReason": "end_turn"}


async def test_help_lists_every_command_one_to_a_line_also_in_markdown(chain):
    async with talk(chain) as client:
        first, *lines, last = (await client.say("help")).splitlines()

    assert (first, last) == ("```text", "```")
    assert [line.split()[0] for line in lines] == list(COMMANDS)


@pytest.mark.parametrize(
    ("outcome", "said", "status"),
    [
        ({"outcome": "selected", "optionId": "allow"}, "Edit: allow\n", "completed"),
        ({"outcome": "selected", "optionId": "reject"}, "Edit: reject\n", "failed"),
        ({"outcome": "cancelled"}, "Edit: cancelled\n", "failed"),
    ],
    ids=lambda value: str(value),
)
async def test_it_asks_for_permission(chain, outcome, said, status):
    async with talk(chain) as client:
        client.handlers["session/request_permission"] = lambda params: {"outcome": outcome}

        assert await client.say("ask Edit") == said
        assert client.transcript.updates()[-2] == {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "call-1-1",
            "status": status,
        }


async def test_it_asks_for_permission_with_what_rules_look_at(chain):
    asked = []

    def answer(params):
        asked.append(params["toolCall"])
        return {"outcome": {"outcome": "cancelled"}}

    async with talk(chain) as client:
        client.handlers["session/request_permission"] = answer
        await client.say('ask See it\'s state kind=read path=.env path=/etc/x command="git status"')
        await client.say('ask command="git status"')
        said = await client.say("ask Read path=.env twice")

    shared = {"status": "pending", "rawInput": {"command": "git status"}}
    files = [{"path": "/work/.env"}, {"path": "/etc/x"}]
    first = {"toolCallId": "call-1-1", "title": "See it's state", "kind": "read"}
    second = {"toolCallId": "call-2-1", "title": "Do something", "kind": "execute"}
    assert asked == [{**first, "locations": files, **shared}, {**second, **shared}]
    assert said.startswith("usage: ask [TITLE]")


def block(text):
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["rules", "say a", "Be brief."], "say a"),
        (["say a", " say b \n"], "say b"),
        (["one", "two"], "two"),
        (["sayings"], "sayings"),
        ([], ""),
    ],
)
def test_commands_are_read_from_the_last_text_that_begins_with_one(texts, read):
    assert command_text([*map(block, texts), {"type": "image"}]) == read


async def test_it_makes_a_plan_and_carries_it_out(chain):
    async with talk(chain) as client:
        await client.say("plan look; leap")

        plans = [update["entries"] for update in client.transcript.updates()[1:]]
    assert [[entry["status"] for entry in entries] for entries in plans] == [
        ["in_progress", "pending"],
        ["completed", "in_progress"],
        ["completed", "completed"],
    ]


async def test_a_wrong_command_shows_its_usage(chain):
    async with talk(chain) as client:
        assert await client.say("stream many") == "usage: stream N [SIZE]\n"
        assert await client.say("call x") == "usage: call SERVER TOOL [JSON]\n"
        assert await client.say("say a\nnonsense") == (
            "aThere is no command 'nonsense'. Try `help`.\n"
        )


async def test_send_writes_the_given_message(chain):
    async with talk(chain) as client:
        client.handlers["_vendor/x"] = lambda params: {"got": params}

        assert await client.say('request _vendor/x {"a": 1}') == '{"got": {"a": 1}}'
        await client.say('notify _vendor/y {"b": 2}')
        assert client.transcript.of("_vendor/y")[0].params == {"b": 2}


async def test_session_cancel_ends_the_turn(chain):
    async with talk(chain) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.say, "say waiting\nwait")
        await client.transcript.wait("session/update agent_message_chunk")

        client.cancel(client.session)
        answer = await client.transcript.wait("answer to session/prompt")

    assert answer.result == {"stopReason": "cancelled"}


async def test_it_crashes_on_demand(chain):
    async with talk(chain, OWN_PROCESS) as client:
        with pytest.raises(RequestError, match="exited with status 4"):
            await client.say("say last words\nlog a hint\nexit 4")
        assert client.transcript.text() == "last words"

    ending = client.attached.ending
    assert ending.reason == "failed"
    assert isinstance(ending.error, ComponentExited)
    assert ending.error.stderr_tail == ("a hint",)


async def test_a_crash_does_not_end_the_conductor(chain):
    async with talk(chain) as client:
        assert "shares its process" in await client.say("exit 4")
        assert client.answer == {"stopReason": "refusal"}


async def test_a_crash_in_the_conductors_process_ends_the_chain_only(chain):
    async with talk(chain) as client:
        with pytest.raises(RequestError, match=r"was cut off .* look at what was done, then send"):
            await client.say("crash")
        await client.attached.ended.wait()

    assert client.attached.ending.reason == "failed"


# -- sessions --------------------------------------------------------------------------------------


async def test_ids_of_sessions_differ_between_processes(chain):
    ids = []
    for _ in range(2):
        async with chain(TestAgent()) as client:
            await client.initialize()
            ids.append(await client.new_session("/work"))

    assert ids[0] != ids[1]
    assert all(re.fullmatch(r"session-1-[0-9a-f]{8}", each) for each in ids)


async def test_sessions_are_listed_closed_and_loaded(chain):
    async with talk(chain) as client:
        await client.say("say hello")
        await client.new_session("/other")
        listed = await client.request("session/list", {})
        assert listed["sessions"] == [
            {"sessionId": "session-1", "cwd": "/work"},
            {"sessionId": "session-2", "cwd": "/other"},
        ]

        await client.request("session/close", {"sessionId": "session-1"})
        with pytest.raises(RequestError, match="closed"):
            await client.say("say x")

        before = len(client.transcript)
        params = {"sessionId": "session-1", "cwd": "/work", "mcpServers": []}
        loaded = await client.request("session/load", params)
        assert loaded["modes"]["currentModeId"] == "ask"
        assert client.transcript.labels[before : before + 3] == [
            "session/update user_message_chunk",
            "session/update agent_message_chunk",
            "answer to session/load",
        ]
        assert await client.say("say again") == "again"


async def test_the_mode_is_set(chain):
    async with talk(chain) as client:
        params = {"sessionId": client.session, "modeId": "code"}
        assert await client.request("session/set_mode", params) == {}
        with pytest.raises(RequestError):
            await client.request("session/set_mode", {**params, "modeId": "dance"})

        await client.say("mode ask")
        assert client.transcript.updates()[-1]["currentModeId"] == "ask"


# -- protocol versions -----------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "answered"), [(0, 1), (1, 1), (2, 2), (99, 2)])
async def test_the_protocol_version_is_the_one_asked_for_or_the_nearest(chain, asked, answered):
    async with chain(TestAgent()) as client:
        result = await client.request("initialize", {"protocolVersion": asked})

    assert result["protocolVersion"] == answered


async def test_in_version_2_the_end_of_a_replay_is_an_update(chain):
    async with talk(chain, version=2) as client:
        await client.prompt_turn(client.session, "say hello")
        params = {"sessionId": client.session, "cwd": "/work"}
        before = len(client.transcript.updates())
        await client.request("session/resume", params)
        assert client.transcript.updates()[before:] == []
        await client.request("session/resume", {**params, "replayFrom": {"type": "start"}})
        kinds = [each["sessionUpdate"] for each in client.transcript.updates()[before:]]
    assert kinds == ["user_message_chunk", "agent_message_chunk", "replay_complete"]


async def test_in_version_2_the_end_of_the_turn_is_an_update(chain):
    async with talk(chain, version=2) as client:
        await client.say("say hello\nask Edit")
        idle = await client.transcript.wait(
            lambda heard: (
                heard.params is not None and heard.params.get("update", {}).get("state") == "idle"
            )
        )

        assert client.answer == {"messageId": "message-1"}
        assert idle.params["update"]["stopReason"] == "end_turn"
        client.transcript.check_order(
            "session/update user_message",
            "session/update state_update",
            "answer to session/prompt",
            "session/update agent_message_chunk",
            "session/request_permission?",
            "session/update tool_call_update",
            "session/update state_update",
        )
        question = client.transcript.of("session/request_permission")[0].params
        assert question["title"] == "Edit"
        assert question["subject"]["type"] == "tool_call"


# -- MCP -------------------------------------------------------------------------------------------


async def test_it_lists_and_calls_the_tools_of_mcp_servers(chain, tmp_path):
    async with talk(chain, cwd=tmp_path, servers=[SERVER]) as client:
        say = client.say
        assert await say("tools") == "server: add, fail, hang, env\n"
        assert await say('call server add {"a": 1, "b": 2}') == "3\n"
        assert await say("call server env") == "by the client\n"
        assert await say("call server fail") == "no\n"
        assert client.transcript.updates()[-2]["status"] == "failed"
        assert "Unknown tool: x" in await say("call server x")
        assert "no MCP server 'y'" in await say("call y x")


async def test_a_server_that_does_not_start_is_no_error_until_it_is_used(chain, tmp_path):
    missing = {"name": "gone", "command": "/no/such/program", "args": [], "env": []}
    async with talk(chain) as client:
        session = await client.new_session(str(tmp_path), [missing])
        await client.prompt(session, "tools")

    assert client.transcript.text() == "MCP server 'gone': no such file: /no/such/program\n"


async def test_the_official_sdks_servers_are_understood(chain, tmp_path):
    program = tmp_path / "server.py"
    program.write_text(
        "from mcp.server import MCPServer\n"
        "server = MCPServer('sdk')\n"
        "@server.tool()\n"
        "def double(n: int) -> str:\n"
        "    return str(2 * n)\n"
        "server.run()\n"
    )
    server = {"name": "sdk", "command": sys.executable, "args": [str(program)], "env": []}
    async with talk(chain) as client:
        session = await client.new_session(str(tmp_path), [server])
        await client.prompt(session, 'tools\ncall sdk double {"n": 21}')

    assert client.transcript.text() == "sdk: double\n42\n"
