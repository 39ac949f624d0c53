"""Sessions of one principal, which agents keep beside everybody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio_websocket
from server.peers import ask, initialize, new_session, request, serving, websocket

from conductor.server.access import Access, read_tokens
from conductor.server.owning import Owners

AGENT = Path(__file__).with_name("keeping_agent.py")
ANN, BOB = "a" * 32, "b" * 32
ACCESS = Access(tokens=read_tokens([f"ann:{ANN}", f"bob:{BOB}"]))


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Any]:
    """Connects a principal to a server whose agents keep their sessions in one place."""
    kept = tmp_path / "kept"
    kept.mkdir()
    agent = f"{{use: {AGENT}:KeepingAgent, with: {{directory: {kept}, node: a}}}}"
    async with serving(tmp_path, chain=f"version: 1\nagent: {agent}\n", access=ACCESS) as server:

        @asynccontextmanager
        async def connect(token: str) -> AsyncIterator[trio_websocket.WebSocketConnection]:
            async with websocket(server, ("authorization", f"Bearer {token}")) as socket:
                await ask(socket, initialize())
                yield socket

        yield connect


def naming(method: str, session: str) -> dict[str, Any]:
    return request(2, method, sessionId=session, cwd="/", mcpServers=[])


@pytest.mark.parametrize("method", ["load", "resume", "fork", "delete"])
async def test_a_session_of_another_principal_is_not_found(connect, method):
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(BOB) as bob:
        answer = await ask(bob, naming(f"session/{method}", session))

    assert answer["error"] == {
        "code": -32002,
        "message": "Resource not found",
        "data": {"sessionId": session},
    }


async def test_a_session_is_taken_up_by_its_principal_on_another_connection(connect):
    async with connect(ANN) as ann:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
    async with connect(ANN) as ann:
        answer = await ask(ann, naming("session/load", session))

    assert "result" in answer


async def test_sessions_of_others_are_not_listed(connect):
    async with connect(ANN) as ann, connect(BOB) as bob:
        session = (await ask(ann, new_session(1)))["result"]["sessionId"]
        own = await ask(ann, request(2, "session/list"))
        others = await ask(bob, request(2, "session/list"))

    assert own["result"] == {"sessions": [{"sessionId": session, "cwd": "/"}]}
    assert others["result"] == {"sessions": []}


def test_one_id_may_be_of_several_and_the_oldest_are_forgotten():
    owners = Owners(most=2)
    owners.claim("1", "ann")
    owners.claim("1", "bob")
    owners.claim("2", "ann")

    assert [owners.allow("1", who) for who in ("ann", "bob", "eve")] == [True, True, False]
    owners.claim("3", "ann")
    assert owners.allow("1", "eve")
