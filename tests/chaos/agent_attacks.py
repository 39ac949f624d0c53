"""Attacks by an agent that does what its client tells it (hostile_agent.py): programs only."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import trio
from chaos.attacks import attack
from chaos.tenants import Tenant, ask, initialize, new_session, open_session, prompt

__all__ = ["KEY_LINE"]

KEY_LINE: Final = "MIIEpAIBAAKCAQEA7bXnPp0aK1qUeYtVwZr3sLh5Gk9JdMxQ2fBvCzTnWiOyRuEs"
TREE: Final = 100
"""Processes of a tree. A thousand are a test of their own (tests/processes): here, eight attacks
run at once beside other work."""
SERVER: Final = {"type": "acp", "name": "n", "serverId": "s"}
BYPASSES: Final[list[dict[str, Any]]] = [
    {"kind": "execute", "rawInput": {"command": "find / -delete", "server": "docs", "tool": "x"}},
    {"kind": "execute", "rawInput": {"command": ["/tmp/evil", "-c", "git status"]}},
    {"kind": "execute", "rawInput": {"command": "git diff --output=x"}},
    {"kind": "read", "rawInput": {"path": "~/.ssh/id_rsa"}},
    {"kind": "read", "rawInput": {"path": "link/../../etc/shadow"}},
    {"kind": "read", "rawInput": {"path": "a", "command": "rm -rf /"}},
]
"""Requests that no rule of the chain allows; more in the tests of `permissions`."""


async def _turn(socket: Any, session: str, text: str) -> str:
    """What a turn said and asked, as JSON. Requests are answered: an MCP connection is opened,
    a question cancelled."""
    await socket.send_message(json.dumps(prompt(2, session, text)))
    said = []
    while True:
        message = json.loads(await socket.get_message())
        if message.get("id") == 2 and "method" not in message:
            return "\n".join(said)
        said.append(json.dumps(message))
        if "id" in message:
            connect = message["method"] == "mcp/connect"
            result = {"connectionId": "c"} if connect else {"outcome": {"outcome": "cancelled"}}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            await socket.send_message(json.dumps(answer))


async def _told(tenant: Tenant, text: str, **more: Any) -> str:
    """A session of one turn."""
    async with tenant.websocket() as socket:
        return await _turn(socket, await open_session(socket, **more), text)


@attack(6, agent="program")
async def blank_lines(tenant: Tenant) -> None:
    """A megabyte of blank lines from the agent."""
    await _told(tenant, "blank 1000000")


@attack(8, agent="program")
async def patterns_of_the_agent(tenant: Tenant) -> None:
    await _told(tenant, "jwt 12500")


@attack(9, agent="program")
async def deep_mcp_message(tenant: Tenant) -> None:
    """Nested 977 deep, to an MCP server of the client."""
    await _told(tenant, "shim 977", mcpServers=[SERVER])


@attack(9, 18, agent="program")
async def tree(tenant: Tenant) -> None:
    """Descendants in process groups of their own that outlive the agent."""
    await _told(tenant, f"tree {TREE}")


@attack(12, agent="program")
async def flooded_shim(tenant: Tenant) -> None:
    """What an agent writes to an MCP server whose connection the client does not open."""
    async with tenant.websocket() as socket:
        session = await open_session(socket, mcpServers=[SERVER])
        await socket.send_message(json.dumps(prompt(2, session, "flood")))
        with trio.move_on_after(5):
            while "taken" not in (text := await socket.get_message()):
                pass
            taken = int(text.partition("taken ")[2].partition('"')[0])
            assert taken < 4 * 2**20, f"the shim took {taken} bytes"


@attack(14, agent="program")
async def permissions(tenant: Tenant) -> None:
    """Tool calls that look like allowed ones: the user is asked."""
    async with tenant.websocket() as socket:
        session = await open_session(socket)
        for call in BYPASSES:
            said = await _turn(socket, session, "ask " + json.dumps({"toolCallId": "t", **call}))
            assert "session/request_permission" in said, f"allowed: {call}"


@attack(15, agent="program")
async def private_key(tenant: Tenant) -> None:
    """A private key that the agent shows in ranges of lines."""
    said = await _told(tenant, "key")
    assert KEY_LINE not in said, "a line of a private key"


@attack(19, agent="program")
async def other_version(tenant: Tenant) -> None:
    """An agent that is restarted, and then answers another protocol version."""
    with tempfile.TemporaryDirectory() as directory:
        mark = str(Path(directory) / "started")
        async with tenant.websocket() as socket:
            await ask(socket, initialize(_meta={"restart": mark}))
            session = await new_session(socket, 1)
            died = await ask(socket, prompt(2, session, "die 1"))
            assert "/" not in json.dumps(died.get("error", {}).get("data", "")), died  # finding 5
            again = await ask(socket, prompt(3, session, "echo hello"))
            assert "error" in again, again


@attack(21, agent="program")
async def half_an_emoji_of_the_agent(tenant: Tenant) -> None:
    await _told(tenant, "half")


@attack(22, agent="program")
async def ids(tenant: Tenant) -> None:
    """An answer with the id 3.0, and a request nested 980 deep, which is answered."""
    await _told(tenant, "float")
    assert "answered" in await _told(tenant, "deep 980")
