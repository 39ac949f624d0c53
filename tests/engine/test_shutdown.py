"""What docs/reliability.md promises of the end of a chain (virtual clock).

Plugins that do not end are in tests/chain/test_shutdown.py, signals in tests/processes.
"""

from __future__ import annotations

from itertools import count

import attrs
import pytest
import trio
from support.peers.wire import PassProxy, Peer
from support.played_chain import cancel_turn, played_chain, prompt, state

MCP = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}

BOTH = pytest.mark.parametrize("version", [1, 2])


async def test_after_eof_open_requests_are_answered_first(tmp_path, autojump_clock):
    """For up to the longest `stop_timeout` of the chain; the components are then given EOF."""
    keys = {"name": "p", "stop_timeout": "20s"}
    async with played_chain(tmp_path, None, keys) as chain:
        await chain.open("s1")
        chain.client.send({"id": 1, "method": "session/list", "params": {}})
        request = await chain.expect("session/list")
        chain.client.close()
        await trio.sleep(19)
        assert not chain.agent.ended

        chain.agent.answer(request, {"sessions": []})

        assert await chain.client.receive() == {"id": 1, "result": {"sessions": []}}
        assert (await chain.wait_ended()).reason == "client"
        assert chain["agent"].status == "exited with status 0"


@BOTH
@pytest.mark.parametrize("end", ["signal", "eof", "client gone"])
async def test_running_turns_are_cancelled_and_their_end_is_awaited(
    tmp_path, version, end, autojump_clock
):
    """The client can still answer what the agent asks meanwhile, unless it has closed stdin."""
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open("s1", "s2", "s3")
        first, second = await chain.prompt(1, "s1"), await chain.prompt(2, "s2")
        chain.client.send(cancel_turn("s2"))  # by the client itself
        assert await chain.expect("session/cancel") == cancel_turn("s2")
        if end == "signal":
            chain.chain.stop()
        elif end == "eof":
            chain.client.close()
        else:
            chain.client.transport.close()
        assert await chain.expect("session/cancel") == cancel_turn("s1")
        if end == "signal":
            chain.agent.send({"id": 7, "method": "_vendor/ask", "params": {}})
            chain.client.answer(await chain.client.receive(), {"keep": True})
            assert (await chain.agent.receive())["result"] == {"keep": True}
        await trio.sleep(1.5)
        assert not chain.agent.ended

        chain.finish(first, "s1", "cancelled")
        chain.finish(second, "s2", "cancelled")

        if end != "client gone":
            reasons = [await chain.client.receive() for _ in range(2)]
            if version == 1:
                assert reasons == [{"id": n, "result": {"stopReason": "cancelled"}} for n in (1, 2)]
            else:
                assert reasons == [state("idle", n, stopReason="cancelled") for n in ("s1", "s2")]
        asked = trio.current_time()
        await chain.wait_ended()
        assert trio.current_time() - asked < 1
        assert chain["agent"].status == "exited with status 0"


@BOTH
async def test_an_agent_that_goes_on_with_a_cancelled_turn_delays_a_signal_by_two_seconds(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        begin = trio.current_time()
        chain.chain.stop()
        await chain.wait_ended()

        assert trio.current_time() - begin == pytest.approx(2, abs=0.3)
        answers = await chain.client.receive_all()
        assert [each["error"]["code"] for each in answers] == [-32603] * (version == 1)


NOTES = """
import trio

from conductor.proxy import Proxy, tool


class Notes(Proxy):
    @tool
    async def add(self, text: str) -> str:
        await trio.sleep_forever()
"""


async def test_a_stand_alone_proxy_does_not_wait_for_mcp_requests_at_eof(tmp_path, mock_clock):
    """The conductor around it cannot cancel them any more: an open `subscriptions/listen`, a call
    of a tool. The clock stands still while a thread imports the MCP SDK."""
    (tmp_path / "notes.py").write_text(NOTES)
    notes = {"name": "notes", "use": "./notes.py:Notes"}
    async with played_chain(tmp_path, None, notes, mode="proxy") as chain:
        parent, ids = chain.client, count(10)

        def send_as_successor(method, params):
            inner, id = {"method": method, "params": params}, next(ids)
            parent.send({"id": id, "method": "proxy/successor", "params": inner})
            return id

        def send_mcp(method, **params):
            params["_meta"] = {f"io.modelcontextprotocol/{name}": of for name, of in MCP.items()}
            carried = {"connectionId": connection, "method": method, "params": params}
            return send_as_successor("mcp/message", carried)

        parent.send({"id": 0, "method": "proxy/initialize", "params": {"protocolVersion": 1}})
        parent.answer(await parent.receive(), {"protocolVersion": 1})
        assert (await parent.receive())["id"] == 0
        params = {"cwd": "/", "mcpServers": []}
        parent.send({"id": 1, "method": "session/new", "params": params})
        set_up = await parent.receive()
        parent.answer(set_up, {"sessionId": "s1"})
        assert (await parent.receive())["id"] == 1
        (server,) = set_up["params"]["params"]["mcpServers"]
        send_as_successor("mcp/connect", {"serverId": server["serverId"]})
        connection = (await parent.receive())["result"]["connectionId"]
        stream = send_mcp("subscriptions/listen", notifications={"toolsListChanged": True})
        told = await parent.receive()
        assert told["params"]["params"]["method"] == "notifications/subscriptions/acknowledged"
        call = send_mcp("tools/call", name="add", arguments={"text": "x"})
        await parent.receive_nothing()

        mock_clock.autojump_threshold = 0
        parent.close()
        await chain.wait_ended()

        assert trio.current_time() < 0.5
        answers = [(each["id"], each["error"]["code"]) for each in await parent.receive_all()]
        assert answers == [(stream, -32800), (call, -32800)]


async def test_a_request_to_a_component_whose_input_is_closed_is_answered_in_its_place(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        chain["p"].peer.stays = True
        chain.client.close()
        await trio.sleep(0.5)
        assert chain["p"].peer.ended
        assert not chain.agent.ended
        chain.agent.send({"id": 1, "method": "mcp/disconnect", "params": {"connectionId": "c"}})
        chain.agent.send({"id": 2, "method": "_vendor/ask", "params": {}})

        assert await chain.agent.receive() == {"id": 1, "result": {}}
        assert (await chain.agent.receive())["error"]["code"] == -32603


async def test_a_request_that_is_never_answered_gets_an_error_after_stop_timeout(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        closed = trio.current_time()
        chain.client.close()
        await chain.wait_ended()

        (answer,) = await chain.client.receive_all()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert trio.current_time() - closed == pytest.approx(5, abs=0.5)


async def test_eof_during_the_start_waits_for_the_answers_too(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        params = {"protocolVersion": 1}
        chain.client.send(
            {"id": 0, "method": "initialize", "params": params},
            {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
        )
        chain.client.close()
        await trio.sleep(3)
        await chain.serve("initialize", params)
        await chain.serve("session/new", {"sessionId": "s1"})

        answers = [await chain.client.receive() for _ in range(2)]
        assert [each["id"] for each in answers] == [0, 1]
        assert answers[1]["result"] == {"sessionId": "s1"}
        assert (await chain.wait_ended()).reason == "client"


@pytest.mark.parametrize("ignores_sigterm", [False, True])
async def test_a_process_that_does_not_end_gets_sigterm_then_sigkill_after_stop_timeout_each(
    tmp_path, ignores_sigterm, autojump_clock
):
    """Each component has its own."""
    keys = {"stop_timeout": "7s"}
    async with played_chain(tmp_path, keys, {"name": "p", "stop_timeout": "60s"}) as chain:
        chain.programs["agent"].ignores_sigterm = ignores_sigterm
        await chain.open("s1")
        chain.agent.stays = True
        process, closed = chain["agent"], trio.current_time()
        chain.client.close()
        await chain.wait_ended()

        signals = dict.fromkeys((name, round(time - closed)) for name, time in process.signals)
        assert list(signals) == [("SIGTERM", 7), ("SIGKILL", 14)][: 1 + ignores_sigterm]
        assert chain["p"].signals == []


async def test_a_connection_that_is_not_open_is_given_up_with_the_start(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        chain.client.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
        await chain.programs["agent"].wait_started()
        chain["agent"].reached, chain.agent.stays = False, True
        chain.client.close()
        closed = trio.current_time()
        await chain.wait_ended()

        assert trio.current_time() - closed == pytest.approx(5, abs=0.5)


ENDS: list[str] = []


@attrs.define(eq=False)
class NotesEof(Peer):
    def close(self):
        ENDS.append(self.name)
        super().close()


@attrs.define(eq=False)
class NotesEofProxy(PassProxy):
    def close(self):
        ENDS.append(self.name)
        super().close()


@pytest.mark.parametrize("failure", [False, True])
async def test_components_are_stopped_from_client_to_agent_and_after_a_failure_backwards(
    tmp_path, failure, autojump_clock
):
    ENDS.clear()
    proxies = [{"name": "a"}, {"name": "b"}, {"name": "c", "on_failure": "end_chain"}]
    notes = {"a": NotesEofProxy, "b": NotesEofProxy, "agent": NotesEof}
    async with played_chain(tmp_path, None, *proxies, peers=notes) as chain:
        await chain.open("s1")
        if failure:
            await chain["c"].end()
        else:
            chain.client.close()
        await chain.wait_ended()

        order = ["a#1", "b#1", "agent#1"]
        assert (order[::-1] if failure else order) == ENDS


@BOTH
@pytest.mark.parametrize("failing", ["agent", "b"])
async def test_what_a_failure_means_for_the_client_passes_the_proxies_before_the_end(
    tmp_path, version, failing, autojump_clock
):
    """Its answers; in version 2 the state `idle` of its turn."""
    keys = {"on_failure": "end_chain"}
    proxies = [{"name": "a"}, {"name": "b", **keys}]
    async with played_chain(tmp_path, keys, *proxies, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        await chain[failing].exit(1)
        assert (await chain.wait_ended()).reason == "failed"

        (end,) = await chain.client.receive_all()
        error = end.pop("error") if version == 1 else end["params"]["update"].pop("error")
        assert end == ({"id": 1} if version == 1 else state("idle", stopReason="error"))
        assert (error["data"]["component"], error["data"]["next"]) == (failing, "the chain ends")


async def test_a_stopped_chain_does_not_blame_the_agent_that_it_has_ended(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        await chain.prompt(1)

        chain.chain.stop()
        await chain.wait_ended()

        error = {"code": -32603, "message": "The chain ended before this was answered"}
        assert await chain.client.receive_all() == [{"id": 1, "error": error}]


async def test_the_chain_ends_at_once_while_a_component_waits_for_its_restart(
    tmp_path, autojump_clock
):
    """What waited for it is answered."""
    async with played_chain(tmp_path, {"restarts": "9 in 1h", "stop_timeout": "1s"}) as chain:
        await chain.open("s1")
        for _ in range(4):
            await chain.programs["agent"].wait_started()
            await chain["agent"].end()
        chain.client.send(prompt(1))
        closed = trio.current_time()
        chain.client.close()
        await chain.wait_ended()

        (answer,) = await chain.client.receive_all()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert trio.current_time() - closed < 1.5
