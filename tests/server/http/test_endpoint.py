"""The rules of the RFD's tables, one by one, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
from support.raw_json import compact
from support.server_clients import (
    Remote,
    http,
    initialize,
    new_session,
    prompt,
    request,
    serving,
    texts,
)

JSON = {"content-type": "application/json"}
pytestmark = pytest.mark.parametrize("version", [1, 2])


async def test_initialize_is_answered_at_once_with_the_connections_id(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        response = await client.post("/acp", json=initialize("first"))

    id = response.headers["acp-connection-id"]
    answer = response.json()
    assert response.status_code == 200
    assert response.http_version == {1: "HTTP/1.1", 2: "HTTP/2"}[version]
    assert response.headers["content-type"] == "application/json"
    assert answer["id"] == "first"
    assert answer["result"]["connectionId"] == id
    assert answer["result"]["agentInfo"]["name"] == "test-agent"
    assert response.headers["set-cookie"] == (
        f"acp_connection={id}; Path=/; HttpOnly; SameSite=Strict"
    )


async def test_every_initialize_makes_a_connection_of_its_own(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        first = await Remote.open(server, client, version)
        second = await client.post("/acp", json=initialize(), headers=first.headers())

        assert second.headers["acp-connection-id"] != first.id
        assert len(server.clients.by_id) == 2


async def test_a_refused_initialize_has_no_connection(tmp_path, version):
    chain = "version: 1\nagent: {run: [/no/such/program]}\n"
    async with serving(tmp_path, chain=chain) as server, http(server, version) as client:
        response = await client.post("/acp", json=initialize())

        assert response.status_code == 200
        assert "error" in response.json()
        assert "acp-connection-id" not in response.headers
        for each in list(server.clients.by_id.values()):
            await each.ended.wait()


async def test_other_messages_are_accepted_and_answered_on_streams(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        async with remote.stream(session) as messages:
            accepted = await remote.post(prompt(7, session, "say hello"), session)
            got = [await messages.receive() for _ in range(3)]

    assert (accepted.status_code, accepted.content) == (202, b"")
    assert list(texts(got)) == ["hello"]
    assert got[-1] == {"jsonrpc": "2.0", "id": 7, "result": {"stopReason": "end_turn"}}


async def test_messages_before_a_stream_opens_are_queued_for_it(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        await remote.post(new_session(1))
        async with remote.stream() as messages:
            session = (await messages.receive())["result"]["sessionId"]
        await remote.post(prompt(2, session, "say one"), session)
        await remote.post(prompt(3, session, "say two"), session)
        async with remote.stream(session) as messages:
            got = [await messages.receive() for _ in range(5)]

    assert list(texts(got)) == ["one", "two"]


async def test_a_post_answers_a_request_of_the_agent(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        async with remote.stream(session) as messages:
            await messages.receive()
            await remote.post(prompt(4, session, "ask"), session)
            asked = await messages.receive()
            while asked.get("method") != "session/request_permission":
                asked = await messages.receive()
            outcome = {"outcome": "selected", "optionId": asked["params"]["options"][0]["optionId"]}
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}}
            answered = await remote.post(answer, session)
            last = await messages.receive()
            while last.get("id") != 4:
                last = await messages.receive()

    assert answered.status_code == 202
    assert last["result"] == {"stopReason": "end_turn"}


async def test_a_session_is_loaded_as_the_rfd_shows_it(tmp_path, version):
    """The session's stream opens before the request, whose answer is on the connection's."""
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        await remote.post(prompt(2, session, "say hello"), session)
        load = request(3, "session/load", sessionId=session, cwd="/", mcpServers=[])
        async with remote.stream() as connection, remote.stream(session) as messages:
            await remote.post(load, session)
            answer = await connection.receive()
            replayed = await messages.receive()

    assert answer["id"] == 3
    assert replayed["params"]["sessionId"] == session


async def test_without_a_session_stream_messages_go_to_the_connections_stream(tmp_path, version):
    """The Python SDK's sends `session/load` without the header, and has no stream for it."""
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        load = request(3, "session/load", sessionId=session, cwd="/", mcpServers=[])
        async with remote.stream() as connection:
            assert (await remote.post(load)).status_code == 202
            await remote.post(prompt(4, session, "say hello"), session)
            got = []
            while not got or got[-1].get("id") != 4:
                got.append(await connection.receive())

    assert list(texts(got)) == ["hello"]


async def test_delete_ends_the_connection_and_its_streams(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        async with remote.stream() as messages:
            deleted = await client.delete("/acp", headers=remote.headers())
            rest = [message async for message in messages]
        again = await client.delete("/acp", headers=remote.headers())

    assert (deleted.status_code, deleted.content) == (202, b"")
    assert rest == []
    assert again.status_code == 404


async def test_an_invalid_request_is_refused_with_its_reason(tmp_path, version):
    async with (
        serving(tmp_path, limits={"message_bytes": 2000}) as server,
        http(server, version) as client,
    ):
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        known = remote.headers()
        unknown = {"acp-connection-id": "made-up"}
        long = compact(prompt(9, session, "x" * 2000))

        async def post(body: str | bytes, **headers: str) -> tuple[int, str]:
            response = await client.post("/acp", content=body, headers={**JSON, **headers})
            return response.status_code, response.text

        body = compact(new_session(5))
        scoped = compact(request(5, "session/prompt", sessionId=session, prompt=[]))
        elsewhere = compact(request(5, "session/prompt", sessionId="other", prompt=[]))
        odd = compact(request(5, "session/prompt", sessionId=7, prompt=[]))
        positional = compact({**request(5, "_custom"), "params": [1]})
        assert [
            await post(body, **{"content-type": "text/plain"}),
            await post(long, **known),
            await post("{", **known),
            await post(b"\xff", **known),
            await post("7", **known),
            await post(f"[{body}]", **known),
            await post(body),
            await post(body, **unknown),
            await post(scoped, **known),
            await post(scoped, **known, **{"acp-session-id": "other"}),
            await post(elsewhere, **known, **{"acp-session-id": "other"}),
            await post(odd, **known),
            await post(positional, **known, **{"acp-session-id": session}),
        ] == [
            (415, "Content-Type must be application/json"),
            (413, "POST body too large"),
            (400, "Invalid JSON: Input data was truncated"),
            (400, "Invalid JSON: not UTF-8: byte 0xff at 0 (invalid start byte)"),
            (400, "Invalid JSON-RPC: Expected `object`, got `int`"),
            (501, "JSON-RPC batches are not supported over HTTP"),
            (400, "Acp-Connection-Id header required"),
            (404, "Unknown Acp-Connection-Id"),
            (400, "Acp-Session-Id header required"),
            (400, "Acp-Session-Id header does not match params.sessionId"),
            (202, ""),
            (400, "params.sessionId must be a string"),
            (400, "Acp-Session-Id header requires object params"),
        ]


async def test_a_session_that_the_connection_does_not_have_is_an_error_on_its_stream(
    tmp_path, version
):
    """To the TypeScript SDK's client a 404 would be the end of the connection."""
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        await remote.new_session()
        async with remote.stream() as connection:
            cancel = {"method": "session/cancel", "params": {"sessionId": "gone"}}
            await remote.post({"jsonrpc": "2.0", **cancel}, "gone")
            await remote.post(prompt(7, "gone", "say hello"), "gone")
            answer = await connection.receive()

    data = {"sessionId": "gone"}
    error = {"code": -32602, "message": "Unknown session", "data": data}
    assert answer == {"jsonrpc": "2.0", "id": 7, "error": error}


async def test_an_invalid_stream_request_is_refused_with_its_reason(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        made_up = Remote(client, "made-up", partial(http, server, version))
        nameless = await client.get("/acp", headers={"accept": "text/event-stream"})
        async with remote.stream():
            second = await remote.get()
        statuses = [await remote.get(accept="text/html"), await made_up.get(), second]

    assert nameless.status_code == 400
    assert statuses == [406, 404, 409]


async def test_an_unloadable_session_has_no_stream(tmp_path, version):
    """Version 2 has no `loadSession`; of version 1 it is the agent's word that counts."""
    chain = f"version: 1\nagent: {{run: [python3, {tmp_path}/agent.py]}}\n"
    (tmp_path / "agent.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    id = json.loads(line)['id']\n"
        "    answer = {'jsonrpc': '2.0', 'id': id, 'result': {'protocolVersion': 1}}\n"
        "    print(json.dumps(answer, separators=(',', ':')), flush=True)\n"
    )
    async with serving(tmp_path, chain=chain) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)

        assert await remote.get("somebody's") == 404


async def test_a_session_named_by_the_header_alone_is_put_into_the_params(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        message = request(2, "session/prompt", prompt=[{"type": "text", "text": "say hello"}])
        async with remote.stream(session) as messages:
            await remote.post(message, session)
            got = [await messages.receive() for _ in range(3)]

    assert list(texts(got)) == ["hello"]


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
async def test_a_quiet_stream_is_kept_alive_by_comments(tmp_path, version):
    async with (
        serving(tmp_path, timeouts={"keep_alive": 0.05}) as server,
        http(server, version) as client,
    ):
        remote = await Remote.open(server, client, version)
        headers = remote.headers(accept="text/event-stream")
        async with client.stream("GET", "/acp", headers=headers) as response:
            lines = response.aiter_lines()
            got = [await anext(lines) for _ in range(6)]

    assert got == [":", ""] * 3


async def test_other_paths_and_methods_are_refused(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        elsewhere = await client.post("/", json=initialize())
        put = await client.put("/acp", json=initialize())

    assert elsewhere.status_code == 404
    assert (put.status_code, put.headers["allow"]) == (405, "GET, POST, DELETE, OPTIONS")


async def test_a_stream_whose_reader_is_gone_can_be_read_again(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        (ours,) = server.clients.by_id.values()
        async with remote.stream():
            assert ours.attached
        await ours.detached.wait()

        assert await remote.get() == 200


async def test_a_chain_that_has_ended_leaves_no_connection(tmp_path, version):
    async with serving(tmp_path) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        (ours,) = server.clients.by_id.values()
        ours.chain.kill()
        await ours.ended.wait()
        response = await remote.post(new_session(1))

    assert response.status_code == 404


@pytest.mark.slow
async def test_a_client_that_disconnects_during_initialize_leaves_nothing(tmp_path, version):
    """hypercorn waited for ever until the rest of a response had left for a closed connection."""
    chain = "version: 1\nagent: {run: [sleep, '600']}\n"  # never answers
    async with serving(tmp_path, chain=chain, limits={"sockets_each": 1}) as server:
        async with trio.open_nursery() as nursery, http(server, version) as client:
            nursery.start_soon(_post_until_cancelled, client)
            while not server.clients.by_id:  # noqa: ASYNC110
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        for each in list(server.clients.by_id.values()):
            await each.ended.wait()
        async with http(server, version) as client:
            while not await _is_let_in(client):  # noqa: ASYNC110
                await trio.sleep(0.01)


async def _post_until_cancelled(client) -> None:
    """The HTTP client may fail to decode what arrives while it closes the connection."""
    with suppress(httpx2.TransportError):
        await client.post("/acp", json=initialize())


async def _is_let_in(client) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx2.TransportError:
        return False


async def test_what_a_subagent_asks_is_on_the_stream_of_its_parent(tmp_path, version):
    agent = Path(__file__).parents[2] / "support/components/delegating_agent.py:DelegatingAgent"
    chain = f"version: 1\nagent: {{use: {agent}, with: {{directory: {tmp_path}, node: a}}}}\n"
    async with serving(tmp_path, chain=chain) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        async with remote.stream(session) as messages:
            await remote.post(prompt(2, session, "go"), session)
            while (asked := await anext(messages)).get("method") != "session/request_permission":
                pass
            child = asked["params"]["sessionId"]
            result = {"outcome": {"outcome": "selected", "optionId": "yes"}}
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
            assert (await remote.post(answer, child)).status_code == 202
            while (said := await anext(messages)).get("id") != 2:
                pass

    assert child == f"{session}.child"
    assert said["result"] == {"stopReason": "end_turn"}


async def test_what_an_unannounced_subagent_says_is_on_the_stream_of_the_connection(
    tmp_path, version
):
    agent = Path(__file__).parents[2] / "support/components/delegating_agent.py:DelegatingAgent"
    options = f"{{directory: {tmp_path}, node: a, announces: false}}"
    chain = f"version: 1\nagent: {{use: {agent}, with: {options}}}\n"
    async with serving(tmp_path, chain=chain) as server, http(server, version) as client:
        remote = await Remote.open(server, client, version)
        session = await remote.new_session()
        async with remote.stream() as connection, remote.stream(session) as messages:
            await remote.post(prompt(2, session, "go"), session)
            with trio.fail_after(20):
                while (said := await anext(connection)).get("method") != "session/update":
                    pass
            while (own := await anext(messages)).get("method") != "session/update":
                pass

    assert said["params"]["sessionId"] == f"{session}.child"
    assert own["params"]["sessionId"] == session
