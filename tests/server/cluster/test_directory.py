"""The session directory, on a real Redis."""

from __future__ import annotations

import gc
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trustme
from support.cluster import COREDIS_FORGETS, directory_at, evict
from support.external_programs import Program, redis_server

from conductor.server.cluster.directory import RedisUnreachable, SessionDirectory

pytestmark = [pytest.mark.external, COREDIS_FORGETS]

A, B = "http://a.example:8765", "http://b.example:8765"


@pytest.fixture
def node(redis: Program) -> Callable[..., SessionDirectory]:
    return partial(directory_at, redis)


@asynccontextmanager
async def running(*directories: SessionDirectory) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for directory in directories:
            await nursery.start(directory.run)
        yield
        nursery.cancel_scope.cancel()


async def eventually(found: Callable[[], object]) -> None:
    """Until an awaitable condition holds: what one node publishes takes a moment to the other."""
    with trio.fail_after(10):
        while not await found():  # type: ignore[misc]
            await trio.lowlevel.checkpoint()


def keys(redis: Program) -> set[str]:
    return set(ask(redis, "keys", "*").split())


def ask(redis: Program, *command: str) -> str:
    argv = ["redis-cli", "-p", str(redis.port), *command]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


async def test_a_connection_is_found_from_the_other_node(node):
    a, b = node(A), node(B)
    async with running(a, b):
        a.connection_opened("one")

        await a.wait_published()

        assert await b.owner_of_connection("one") == A
        assert await a.owner_of_connection("one") is None, "it is its own"
        assert await b.owner_of_connection("other") is None


async def test_a_session_is_found_for_its_principal_only(node):
    a, b = node(A), node(B)
    async with running(a, b):
        a.session_opened("alice", "s1")

        await a.wait_published()

        assert await b.owner_of_session("alice", "s1") == A
        assert await b.owner_of_session("mallory", "s1") is None
        assert await b.owner_of_session(None, "s1") is None


async def test_ended_connections_and_sessions_are_not_found(node):
    a, b = node(A), node(B)
    async with running(a, b):
        a.connection_opened("one")
        a.connection_opened("two")
        await a.wait_published()

        a.connection_closed("one")

        async def gone() -> bool:
            return await b.owner_of_connection("one") is None

        await eventually(gone)
        assert await b.owner_of_connection("two") == A


async def test_a_session_of_two_connections_ends_with_the_second(node, redis):
    a, b = node(A), node(B)
    async with running(a, b):
        a.session_opened("alice", "s1")
        a.session_opened("alice", "s1")
        a.session_closed("alice", "s1")
        a.connection_opened("after")
        await a.wait_published()

        assert await b.owner_of_session("alice", "s1") == A


async def test_a_session_that_moved_on_is_not_taken_from_its_new_node(node):
    a, b, c = node(A), node(B), node("http://c.example")
    async with running(a, b, c):
        a.session_opened("alice", "s1")
        await a.wait_published()
        b.session_opened("alice", "s1")

        async def moved() -> bool:
            return await c.owner_of_session("alice", "s1") == B

        await eventually(moved)
        a.session_closed("alice", "s1")
        a.connection_opened("after")
        await a.wait_published()

        assert await c.owner_of_session("alice", "s1") == B


async def test_a_node_that_ends_leaves_nothing_but_the_state_of_the_claims(node, redis):
    a = node(A)
    async with running(a):
        for number in range(1200):
            a.connection_opened(str(number))
        a.session_opened("alice", "s1")

    assert keys(redis) == {"acp-conductor:claims"}


async def test_entries_of_a_killed_node_expire(node, redis):
    a, b = node(A, lease=0.3, lookup_timeout=0.1), node(B)
    async with running(b):
        async with running(a):
            a.connection_opened("one")
            await a.wait_published()
            redis.send_signal(signal.SIGSTOP)
        redis.send_signal(signal.SIGCONT)

        async def dead() -> bool:
            return await b.owner_of_connection("one") is None

        await eventually(dead)
        assert not b.unreachable


async def test_neither_ids_nor_principals_are_in_redis(node, redis):
    a, b = node(A), node(B)
    async with running(a, b):
        a.connection_opened("secret-connection")
        a.session_opened("alice@example.org", "secret-session")
        await a.wait_published()

        said = " ".join(f"{key} {ask(redis, 'get', key)}" for key in keys(redis))

    assert A in said
    assert "secret" not in said
    assert "alice" not in said


async def test_all_entries_are_written_again_to_a_redis_that_lost_its_data(node, redis):
    a, b = node(A, lease=0.6), node(B, lease=0.6)
    async with running(a, b):
        a.connection_opened("before")
        await eventually(lambda: b.owner_of_connection("before"))
        redis.end()
        a.connection_opened("meanwhile")

        assert await b.owner_of_connection("before") is None
        redis.start()

        await eventually(lambda: b.owner_of_connection("before"))
        await eventually(lambda: b.owner_of_connection("meanwhile"))
        assert not b.unreachable


async def test_a_node_starts_without_redis_and_finds_it_later(node, redis):
    redis.end()
    a, b = node(A, lease=0.6), node(B, lease=0.6)
    async with running(a, b):
        a.connection_opened("one")
        assert await b.owner_of_connection("one") is None
        assert b.unreachable

        redis.start()

        await a.wait_published()


async def test_a_redis_that_hangs_costs_one_lookup_timeout(node, redis, capfd):
    from conductor import log

    log.configure("info")
    b = node(B, lookup_timeout=0.2)
    async with running(b):
        await b.owner_of_connection("warm")
        redis.send_signal(signal.SIGSTOP)
        try:
            with trio.fail_after(2):
                assert await b.owner_of_connection("one") is None
            began = trio.current_time()
            for number in range(100):
                assert await b.owner_of_connection(str(number)) is None
            assert trio.current_time() - began < 0.1, "the others do not ask"
        finally:
            redis.send_signal(signal.SIGCONT)

    assert capfd.readouterr().err.count("Redis unreachable") == 1


async def test_a_redis_that_begins_to_evict_is_not_used_meanwhile(node, redis, capfd):
    from conductor import log

    log.configure("info")
    careful, careless = node(A), node(B, allow_eviction=True)
    record = (b"1" * 16, "ann")
    async with running(careful, careless):
        evict(redis, "allkeys-lru")
        for directory in (careful, careless, careful):
            await directory._send_heartbeat()

        assert (careful.can_record, careless.can_record) == (False, True)
        with pytest.raises(RedisUnreachable):
            await careful.ask(partial(careful.claims.write, records=[record]))
        await careless.ask(partial(careless.claims.write, records=[record]))

        evict(redis, "noeviction")
        await careful._send_heartbeat()

        await careful.ask(partial(careful.claims.write, records=[record]))
    assert capfd.readouterr().err.count("Redis may evict") == 2


async def test_redis_with_tls_and_a_password(tmp_path):
    authority = trustme.CA()
    ours = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ours.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    ours.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    server = redis_server(tmp_path)
    tls = {"cert-file": "cert.pem", "key-file": "key.pem", "ca-cert-file": "ca.pem"}
    files = [word for name, file in tls.items() for word in (f"--tls-{name}", tmp_path / file)]
    only = ["--port", "0", "--tls-port", server.port, "--tls-auth-clients", "no"]
    server.argv += [str(word) for word in [*only, *files, "--requirepass", "right-password"]]
    server.start()
    try:
        address = f"localhost:{server.port}/0"
        known = SessionDirectory(
            f"rediss://:right-password@{address}?ssl_ca_certs={tmp_path}/ca.pem",
            A,
            lookup_timeout=5,
        )
        unknown = SessionDirectory(f"rediss://:right-password@{address}", A, lookup_timeout=5)
        async with running(known, unknown):
            assert (known.unreachable, unknown.unreachable) == (False, True)
    finally:
        server.end()
        gc.collect()


async def test_a_password_is_not_logged(redis, capfd):
    from conductor import log

    ask(redis, "config", "set", "requirepass", "right-password")
    log.configure("info")
    directory = SessionDirectory(f"redis://:wrong-password@127.0.0.1:{redis.port}/0", A)
    async with running(directory):
        assert directory.unreachable

    said = capfd.readouterr()
    assert "Redis unreachable" in said.err
    assert "password@" not in said.err
    assert "wrong-password" not in said.err + repr(directory)
