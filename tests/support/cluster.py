"""Nodes that share one Redis, agents that keep sessions in one directory and name their node, and
a client's messages."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio_websocket

from conductor.server.cluster.directory import SessionDirectory
from support.external_programs import Program
from support.raw_json import compact
from support.server_clients import ask, initialize, new_session, prompt, texts

COREDIS_FORGETS = pytest.mark.filterwarnings(
    # coredis does not close in-memory streams of a connection that failed; nothing else is lost.
    "ignore:.*MemoryObject.*Stream:pytest.PytestUnraisableExceptionWarning"
)

AGENT = Path(__file__).parent / "components" / "durable_agent.py"


def redis_url(redis: Program) -> str:
    return f"redis://127.0.0.1:{redis.port}/0"


def evict(redis: Program, policy: str) -> None:
    """Set the policy by which Redis evicts keys, and a limit at which it does."""
    for name, value in (("maxmemory", "50mb"), ("maxmemory-policy", policy)):
        argv = ["redis-cli", "-p", str(redis.port), "config", "set", name, value]
        subprocess.run(argv, capture_output=True, check=True)


def directory_at(redis: Program, advertise: str, **options: Any) -> SessionDirectory:
    """A node's view of the sessions, not running."""
    return SessionDirectory(redis_url(redis), advertise, **options)


def keeping_chain(directory: Path, name: str) -> str:
    """The chain file of a node: its sessions are kept below the directory, for all nodes there."""
    kept = directory / "sessions"
    kept.mkdir(exist_ok=True)
    return (
        "version: 1\nagent:\n"
        f"  use: {AGENT}:KeepingAgent\n  with: {{directory: {kept}, node: {name}}}\n"
    )


# -- a client, by WebSocket ------------------------------------------------------------------------


async def open_session(socket: trio_websocket.WebSocketConnection) -> str:
    await ask(socket, initialize())
    session: str = (await ask(socket, new_session(1)))["result"]["sessionId"]
    return session


async def say(socket: trio_websocket.WebSocketConnection, session: str, text: str) -> str:
    """Prompt, and return what the agent said."""
    await socket.send_message(compact(prompt("turn", session, text)))
    return await rest_of_turn(socket)


async def rest_of_turn(socket: trio_websocket.WebSocketConnection) -> str:
    said = []
    while True:
        message = json.loads(await socket.get_message())
        if message.get("id") == "turn":
            assert "result" in message, message
            return "".join(said)
        said += texts([message])


async def lose(socket: trio_websocket.WebSocketConnection) -> None:
    """Close the TCP connection without a close frame."""
    with suppress(trio.BrokenResourceError):
        await trio.aclose_forcefully(socket._stream)
