"""Session access on several nodes with a shared session store."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio_websocket
from support.cluster import COREDIS_FORGETS, directory_at, keeping_chain
from support.external_programs import Program, free_port
from support.raw_json import compact
from support.server_clients import ask, initialize, new_session, request, serving, websocket

from conductor.server.access import AccessPolicy, read_tokens
from conductor.server.cluster.claims import SharedClaims
from conductor.server.cluster.directory import SessionDirectory
from conductor.server.listen.address import TcpAddress
from conductor.server.run import RunningServer

pytestmark = [pytest.mark.external, COREDIS_FORGETS]

ANN, BOB = "a" * 32, "b" * 32
ACCESS = AccessPolicy(tokens=read_tokens([f"ann:{ANN}", f"bob:{BOB}"]))
METHODS = ["session/load", "session/resume", "session/fork", "session/delete", "session/prompt"]
NOT_FOUND, CANNOT_TELL = -32002, -32603


@attrs.define
class Nodes:
    redis: Program
    directory: Path

    @asynccontextmanager
    async def serve(self, name: str, lease: float = 3.0) -> AsyncIterator[RunningServer]:
        place = self.directory / name
        place.mkdir()
        port = free_port()
        async with serving(
            place,
            chain=keeping_chain(self.directory, name),
            listen=(TcpAddress("127.0.0.1", port),),
            directory=directory_at(self.redis, f"http://127.0.0.1:{port}", lease=lease),
            access=ACCESS,
        ) as server:
            yield server

    @asynccontextmanager
    async def two(self, lease: float = 3.0) -> AsyncIterator[tuple[RunningServer, RunningServer]]:
        async with self.serve("a", lease) as a, self.serve("b", lease) as b:
            yield a, b


@pytest.fixture
def nodes(redis: Program, tmp_path: Path) -> Nodes:
    return Nodes(redis, tmp_path)


@asynccontextmanager
async def client(
    server: RunningServer, token: str
) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    async with websocket(server, ("authorization", f"Bearer {token}")) as socket:
        await ask(socket, initialize())
        yield socket


async def new(socket: trio_websocket.WebSocketConnection) -> str:
    session: str = (await ask(socket, new_session(1)))["result"]["sessionId"]
    return session


async def name(
    socket: trio_websocket.WebSocketConnection, method: str, session: str
) -> dict[str, Any]:
    prompt = [{"type": "text", "text": "hi"}]
    params = {"sessionId": session, "cwd": "/", "mcpServers": [], "prompt": prompt}
    answer: dict[str, Any] = await ask(socket, request(2, method, **params))
    return answer


def code(answer: dict[str, Any]) -> int | None:
    return answer["error"]["code"] if "error" in answer else None


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(10):
        while not await is_so():
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("method", METHODS)
async def test_a_session_of_another_principal_is_not_found_at_another_node(nodes, method):
    async with nodes.two() as (a, b), client(a, ANN) as ann:
        session = await new(ann)
        async with client(b, BOB) as bob:
            answer = await name(bob, method, session)

    assert answer["error"] == {
        "code": NOT_FOUND,
        "message": "Resource not found",
        "data": {"sessionId": session},
    }


async def test_a_session_stays_with_its_principal_after_its_node_has_ended(nodes):
    async with nodes.serve("b") as b:
        async with nodes.serve("a") as a, client(a, ANN) as ann:
            session = await new(ann)
        async with client(b, BOB) as bob, client(b, ANN) as ann:
            others = await name(bob, "session/load", session)
            listed = await ask(bob, request(3, "session/list"))
            own_list = await ask(ann, request(3, "session/list"))
            own = await name(ann, "session/load", session)

    assert code(others) == NOT_FOUND
    assert listed["result"]["sessions"] == []
    assert [each["sessionId"] for each in own_list["result"]["sessions"]] == [session]
    assert code(own) is None


async def test_a_session_without_an_owner_belongs_to_the_first_principal_at_every_node(
    nodes, tmp_path
):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "old").touch()
    async with nodes.two() as (a, b), client(a, ANN) as ann, client(b, BOB) as bob:
        failed = await name(ann, "session/load", "no such")
        first = await name(ann, "session/load", "old")
        second = await name(bob, "session/load", "old")
        (tmp_path / "sessions" / "no such").touch()
        found = await name(bob, "session/load", "no such")

    assert [code(each) for each in (failed, first, second, found)] == [
        NOT_FOUND,
        None,
        NOT_FOUND,
        None,
    ]


async def test_without_redis_sessions_that_are_not_known_here_are_refused(nodes, redis):
    async with nodes.two() as (a, b), client(a, ANN) as ann, client(b, BOB) as bob:
        session = await new(ann)
        own = await new(bob)
        redis.end()
        others = [await name(bob, method, session) for method in METHODS]
        listed = await ask(bob, request(3, "session/list"))
        known = await name(bob, "session/load", own)
        another = await ask(bob, new_session(4))

    assert [code(each) for each in others] == [CANNOT_TELL] * 4 + [NOT_FOUND]
    assert [each["sessionId"] for each in listed["result"]["sessions"]] == [own]
    assert code(known) is None
    assert code(another) == CANNOT_TELL


async def test_a_redis_that_lost_its_data_opens_no_session_to_others(nodes, redis):
    async with nodes.two(1.5) as (a, b), client(a, ANN) as ann, client(b, BOB) as bob:
        session = await new(ann)
        redis.end()
        meanwhile = code(await name(bob, "session/load", session))
        redis.start()
        codes = set()

        async def is_found_to_be_anns() -> bool:
            codes.add(answer := code(await name(bob, "session/load", session)))
            return answer == NOT_FOUND

        await until(is_found_to_be_anns)

    assert meanwhile == CANNOT_TELL
    assert codes <= {CANNOT_TELL, NOT_FOUND}


async def test_no_session_is_created_while_the_directory_is_unavailable(nodes, redis):
    """They would let any client load and list it."""
    async with nodes.two(1.5) as (a, b), client(a, ANN) as ann, client(b, BOB) as bob:
        redis.send_signal(signal.SIGSTOP)
        refused = [code(await ask(ann, new_session(number))) for number in (1, 2)]
        redis.send_signal(signal.SIGCONT)
        answers = []

        async def is_made() -> bool:
            answers.append(await ask(ann, new_session(3)))
            return "result" in answers[-1]

        await until(is_made)
        session = answers[-1]["result"]["sessionId"]
        answer = await name(bob, "session/load", session)

    assert refused == [CANNOT_TELL] * 2
    assert code(answer) in (NOT_FOUND, CANNOT_TELL)


async def test_owners_are_unknown_until_every_node_has_rewritten_its_claims(redis):
    """A node that had claims before finds an empty Redis; one that starts finds it complete."""
    record = (b"digest", "ann")
    old, fresh = (SharedClaims(settling=60.0) for _ in range(2))
    directory = directory_at(redis, "http://a.example")
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.run)
        await directory.ask(fresh.check_for_data_loss)
        assert await directory.ask(lambda redis: fresh.look_up(redis, [record])) == ["free"]

        await directory.ask(old.check_for_data_loss)
        await directory.ask(lambda redis: redis.flushdb())
        assert await directory.ask(lambda redis: fresh.look_up(redis, [record])) == ["unknown"]

        await directory.ask(SharedClaims().check_for_data_loss)  # of a node that has just started
        await directory.ask(old.check_for_data_loss)
        assert old.is_stale
        assert await directory.ask(lambda redis: fresh.look_up(redis, [record])) == ["unknown"]
        assert await directory.ask(lambda redis: fresh.claim(redis, record)) == "unknown"

        await directory.ask(lambda redis: old.write(redis, [record]))
        eve = (b"digest", "eve")
        both = await directory.ask(lambda redis: fresh.look_up(redis, [record, eve]))
        assert both == ["ours", "theirs"]
        nursery.cancel_scope.cancel()


async def test_of_two_concurrent_claims_one_succeeds(redis):
    directory = directory_at(redis, "http://a.example")
    verdicts = []
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.run)

        async def claim(who: str) -> None:
            claims = directory.claims
            verdicts.append(await directory.ask(lambda r: claims.claim(r, (b"digest", who))))

        async with trio.open_nursery() as claiming:
            for number in range(20):
                claiming.start_soon(claim, str(number))
        nursery.cancel_scope.cancel()

    assert sorted(verdicts) == ["free"] + ["theirs"] * 19


async def test_principals_and_sessions_are_not_in_redis(nodes, redis):
    async with nodes.serve("a") as a, client(a, ANN) as ann:
        session = await new(ann)
        found = await _everything(_directory(a))

    assert "acp-conductor:owners:" in found
    assert "ann" not in found
    assert session not in found


async def _everything(directory: SessionDirectory) -> str:
    async def dump(redis: Any) -> str:
        said = []
        for key in await redis.keys("*"):
            kind = str(await redis.type(key))
            value = await redis.smembers(key) if "set" in kind else ""
            said.append(f"{key} {value}")
        return "\n".join(said)

    return await directory.ask(dump)


def _directory(server: RunningServer) -> SessionDirectory:
    directory = server.clients.directory
    assert directory is not None
    return directory


@pytest.mark.parametrize("how", ["update", "child", "ask", "read"])
async def test_a_session_that_an_agent_names_at_another_node_is_still_of_its_principal(nodes, how):
    async with nodes.two() as (a, b), client(a, ANN) as ann, client(b, BOB) as bob:
        session, own = await new(ann), await new(bob)
        prompt = [{"type": "text", "text": f"name {how} {session}"}]
        asked = request(3, "session/prompt", sessionId=own, prompt=prompt)
        await bob.send_message(compact(asked))
        while (got := json.loads(await bob.get_message())).get("id") != 3 or "method" in got:
            if "id" in got:
                refused = {"jsonrpc": "2.0", "id": got["id"], "error": {"code": -1, "message": "x"}}
                await bob.send_message(compact(refused))

        assert code(await name(bob, "session/load", session)) == NOT_FOUND
        assert code(await name(ann, "session/load", session)) is None
