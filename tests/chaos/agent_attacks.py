"""Attacks by an agent that does what its client tells it (hostile_agent.py): programs only."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import psutil
import trio
from chaos.attacks import attack
from chaos.clients import Device, ask, initialize, new_session, open_session, prompt
from chaos.measured_server import PERMISSIONS
from support.bypasses import cases_of, filled
from support.raw_json import compact

__all__ = ["KEY_LINE"]

KEY_LINE: Final = "MIIEpAIBAAKCAQEA7bXnPp0aK1qUeYtVwZr3sLh5Gk9JdMxQ2fBvCzTnWiOyRuEs"
TREE: Final = 300
"""Processes of a tree. A thousand are a test of their own (tests/processes): here, eight attacks
run at once beside other work."""
CALLS: Final = 30
"""Tool calls of one attack on the rules."""
SERVER: Final = {"type": "acp", "name": "n", "serverId": "s"}


async def _turn(socket: Any, session: str, text: str) -> str:
    """What a turn said and asked, as JSON. Requests are answered: an MCP connection is opened,
    a question cancelled."""
    await socket.send_message(compact(prompt(2, session, text)))
    said = []
    while True:
        message = json.loads(await socket.get_message())
        if message.get("id") == 2 and "method" not in message:
            return "\n".join(said)
        said.append(json.dumps(message))
        if "id" in message:
            connect = message["method"] == "mcp/connect"
            opened, cancelled = {"connectionId": f"c{len(said)}"}, {"outcome": "cancelled"}
            result = opened if connect else {"outcome": cancelled}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            await socket.send_message(compact(answer))


async def _told(device: Device, text: str, **more: Any) -> str:
    """A session of one turn."""
    async with device.websocket() as socket:
        return await _turn(socket, await open_session(socket, **more), text)


@attack(agent="program")
async def blank_lines(device: Device) -> None:
    """A megabyte of blank lines from the agent."""
    await _told(device, "blank 1000000")


@attack(agent="program")
async def patterns_of_the_agent(device: Device) -> None:
    await _told(device, "jwt 12500")


@attack(agent="program")
async def deep_mcp_message(device: Device) -> None:
    """Nested 977 deep, to an MCP server of the client."""
    await _told(device, "shim 977", mcpServers=[SERVER])


@attack(agent="program")
async def tree(device: Device) -> None:
    """Descendants in process groups of their own that outlive the agent."""
    await _told(device, f"tree {TREE}")


@attack(agent="program")
async def orphans(device: Device) -> None:
    """Descendants in sessions of their own, of an agent that is killed with SIGKILL: they end with
    their client at the latest."""
    async with device.websocket() as socket:
        said = await _turn(socket, await open_session(socket), "orphans 10")
        numbers = said.partition("orphans ")[2].partition('"')[0].split()
        assert len(numbers) == 10, said[-200:]
        alive = [process for each in numbers if (process := _process(int(each))) is not None]
    with trio.move_on_after(60):
        while any(each.is_running() for each in alive):  # noqa: ASYNC110
            await trio.sleep(0.2)
    left = [each.pid for each in alive if each.is_running()]
    assert not left, f"{len(left)} of 10 processes outlive their client"


def _process(number: int) -> psutil.Process | None:
    """The process, unless it has ended."""
    try:
        found = psutil.Process(number)
        return found if found.name() == "sleep" else None
    except psutil.NoSuchProcess:
        return None


@attack(agent="program")
async def flooded_shim(device: Device) -> None:
    """What an agent writes to an MCP server whose connection the client does not open."""
    async with device.websocket() as socket:
        session = await open_session(socket, mcpServers=[SERVER])
        await socket.send_message(compact(prompt(2, session, "flood")))
        with trio.move_on_after(5):
            while "taken" not in (text := await socket.get_message()):
                pass
            taken = int(text.partition("taken ")[2].partition('"')[0])
            assert taken < 4 * 2**20, f"the shim took {taken} bytes"


@attack(agent="program")
async def permissions(device: Device) -> None:
    """Calls of the corpus of bypasses, a part of one agent's at a time."""
    cases = list(cases_of(PERMISSIONS))
    agent = device.random.choice(cases)[0]
    of_agent = [(call, expected) for name, call, expected in cases if name == agent]
    places = {each: Path(device.place) / each for each in ("cwd", "home", "outside")}
    servers = [{"name": "docs", "command": "true", "args": [], "env": []}]
    async with device.websocket() as socket:
        await ask(socket, initialize(_meta={"name": agent}))
        drawn = device.random.sample(of_agent, min(CALLS, len(of_agent)))
        for number, (call, expected) in enumerate(drawn, 1000):
            new = {"cwd": str(places["cwd"]), "mcpServers": servers}
            session = await new_session(socket, number, **new)
            asked = {"toolCallId": f"t{number}", **filled(call, places)}
            said = await _turn(socket, session, f"ask {json.dumps(asked)}")
            to_user = "session/request_permission" in said
            assert '"yes"' not in said.rpartition("session/update")[2], f"allowed: {call}"
            assert expected != "deny" or not to_user, f"not denied: {call}"


@attack(agent="program")
async def private_key(device: Device) -> None:
    """A private key that the agent shows in ranges of lines."""
    said = await _told(device, "key")
    assert KEY_LINE not in said, "a line of a private key"


@attack(agent="program")
async def other_version(device: Device) -> None:
    """An agent that is restarted, and then answers another protocol version."""
    with tempfile.TemporaryDirectory() as directory:
        mark = str(Path(directory) / "started")
        async with device.websocket() as socket:
            await ask(socket, initialize(_meta={"restart": mark}))
            session = await new_session(socket, 1)
            died = await ask(socket, prompt(2, session, "die 1"))
            assert "/" not in json.dumps(died.get("error", {}).get("data", "")), died  # finding 5
            again = await ask(socket, prompt(3, session, "echo hello"))
            assert "error" in again, again


@attack(agent="program")
async def half_an_emoji_of_the_agent(device: Device) -> None:
    await _told(device, "half")


@attack(agent="program")
async def ids(device: Device) -> None:
    """An answer with the id 3.0, and a request nested 980 deep, which is answered."""
    await _told(device, "float")
    assert "answered" in await _told(device, "deep 980")
