"""Two servers without a Redis: some tests of `test_forward` and of the claims, on one in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from server.cluster.test_claims import ACCESS, ANN, BOB, NOT_FOUND, client, code, name, new
from server.cluster.test_forward import (  # noqa: F401
    Nodes,
    test_a_forwarded_request_is_not_forwarded_again,
    test_a_session_that_is_open_elsewhere_is_not_loaded_twice,
    test_a_websocket_accepted_by_hypercorn_is_tunnelled_too,
    test_a_websocket_that_reconnects_to_another_node_is_tunnelled,
    test_an_http_connection_works_from_every_server,
)
from support.memory_redis import MemoryRedis
from support.server_clients import ask, request

from conductor.server.cluster.registration import SESSION_ELSEWHERE


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    redis = MemoryRedis()
    monkeypatch.setattr("conductor.server.cluster.directory._redis_client", redis.client)
    return Nodes(redis, tmp_path)  # type: ignore[arg-type]


async def test_a_session_belongs_to_its_principal_at_every_node(nodes):
    async with nodes.two(access=ACCESS) as (a, b), client(a, ANN) as ann:
        session = await new(ann)
        async with client(b, BOB) as bob, client(b, ANN) as same:
            codes = [code(await name(each, "session/load", session)) for each in (bob, same)]

    assert codes == [NOT_FOUND, SESSION_ELSEWHERE]


@pytest.mark.parametrize("method", ["session/prompt", "session/load", "_vendor/ask"])
async def test_a_session_of_another_node_is_not_found_in_meta(nodes, method):
    async with nodes.two(access=ACCESS) as (a, b), client(a, ANN) as ann, client(b, BOB) as bob:
        session, own = await new(ann), await new(bob)
        params = {"sessionId": own, "cwd": "/", "mcpServers": [], "prompt": []}
        refused = await ask(bob, request(2, method, **params, _meta={"session_id": session}))
        allowed = await ask(bob, request(2, method, **params, _meta={"session_id": own}))

    assert code(refused) == NOT_FOUND
    assert code(allowed) != NOT_FOUND


async def test_an_mcp_server_has_session_ids_of_its_own(nodes):
    async with nodes.two(access=ACCESS) as (a, _), client(a, ANN) as ann:
        params = {"connectionId": "c", "params": {"session_id": "unknown"}}
        answer = await ask(ann, request(2, "mcp/message", **params))

    assert code(answer) != NOT_FOUND
