"""What docs/reliability.md promises of bypassed proxies and failed plugins (virtual clock)."""

from __future__ import annotations

import pytest
import trio
from support.played_chain import played_chain, prompt, state, told

BOTH = pytest.mark.parametrize("version", [1, 2])
GOES_ON = "the chain goes on without it"


@BOTH
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_the_neighbours_of_a_bypassed_proxy_are_connected_and_each_session_is_told_once(
    tmp_path, version, place, autojump_clock
):
    proxies = [{"name": name, "on_failure": "bypass"} for name in "abc"]
    name = "abc"[place]
    async with played_chain(tmp_path, None, *proxies, version=version) as chain:
        await chain.open("s1", "s2")
        chain.client.send({"id": "x", "method": "_wait"})
        await chain.expect("_wait")

        await chain[name].end()

        came = await chain.client.receive_all()
        (error,) = [each for each in came if each.get("id") == "x"]
        came.remove(error)
        assert error["error"]["data"]["next"] == GOES_ON
        text = f"[acp-conductor] component '{name}' was ended by SIGKILL; {GOES_ON}"
        assert [told(each) for each in came] == [("s1", text), ("s2", text)]
        (cancelled,) = await chain.agent.receive_all()
        assert cancelled["method"] == "$/cancel_request"
        chain.finish(await chain.prompt(1))
        assert len(await chain.client.receive_all()) == 1
        assert len(chain.programs[name].processes) == 1


async def test_a_request_that_only_the_bypassed_proxy_could_handle_is_refused(
    tmp_path, autojump_clock
):
    """By its neighbour: here the agent."""
    async with played_chain(tmp_path, None, {"name": "p", "on_failure": "bypass"}) as chain:
        await chain.open("s1")
        await chain["p"].end()
        await chain.client.receive()

        chain.client.send({"id": 1, "method": "_of_the_proxy"})
        await chain.refuse("_of_the_proxy", -32601, "Method not found")

        error = {"code": -32601, "message": "Method not found"}
        assert await chain.client.receive() == {"id": 1, "error": error}


@pytest.mark.parametrize("declares", [False, True])
async def test_a_client_is_asked_for_an_mcp_server_only_if_it_has_declared_one(
    tmp_path, declares, autojump_clock
):
    """The proxy that provided it was bypassed; a client may not know how to refuse."""
    servers = [{"type": "acp", "name": "s", "id": "of-the-client"}] if declares else []
    async with played_chain(tmp_path, None, {"name": "p", "on_failure": "bypass"}) as chain:
        await chain.open()
        await chain.new_session("s1", mcpServers=servers)
        await chain["p"].end()
        await chain.client.receive()

        chain.agent.send({"id": "m", "method": "mcp/connect", "params": {"acpId": "of-p"}})

        if declares:
            asked = await chain.client.receive()
            assert (asked["method"], asked["params"]) == ("mcp/connect", {"acpId": "of-p"})
            chain.client.refuse(asked, -32602, "no such server")
            assert (await chain.agent.receive())["error"]["message"] == "no such server"
        else:
            error = (await chain.agent.receive())["error"]
            assert (error["code"], error["data"]) == (-32601, "mcp/connect")
            await chain.client.receive_nothing()


async def test_messages_that_waited_for_a_restart_are_sent_past_a_proxy_that_is_bypassed(
    tmp_path, autojump_clock
):
    """Its program is gone, so no restart succeeds; they keep their order in both directions."""
    async with played_chain(tmp_path, None, {"name": "p", "restarts": "2 in 1h"}) as chain:
        await chain.open("s1")
        chain.programs["p"].missing = True
        await chain["p"].end()
        notes = [{"method": "_note", "params": {"n": n}} for n in range(3)]
        chain.client.send(notes[0], prompt(1), *notes[1:])
        chain.agent.send(*notes)
        await trio.sleep(3)

        came = await chain.agent.receive_all()
        assert [each for each in came if each["method"] == "_note"] == notes
        assert came[1]["method"] == "session/prompt"
        back = await chain.client.receive_all()
        assert [each for each in back if each["method"] == "_note"] == notes
        (session, text), *others = [told(each) for each in back if each["method"] != "_note"]
        assert (session, others) == ("s1", [])
        assert text.endswith(GOES_ON)
        chain.agent.answer(came[1], {"stopReason": "end_turn"})
        assert await chain.client.receive() == {"id": 1, "result": {"stopReason": "end_turn"}}


# -- plugins ---------------------------------------------------------------------------------------

PLUGIN = """
import sys
from contextlib import asynccontextmanager

import trio

from conductor.proxy import Agent, Proxy, on


class Breaks(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        self.broken = trio.Event()

        async def watch():
            await self.broken.wait()
            raise RuntimeError("worn out")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()

    @on("_break", source="client")
    async def break_(self, params: dict):
        self.broken.set()


class Fails(Breaks):
    @on("_handler", source="client")
    async def handler(self, params: dict):
        raise ValueError("handler")

    @on("_exits", source="client")
    async def exits(self, params: dict):
        sys.exit(7)

    @on("_task", source="client")
    async def task(self, params: dict):
        self.start_soon(self.fail)
        return {}

    async def fail(self):
        raise KeyboardInterrupt

    @on("session/prompt")
    async def see(self, params: dict, forward):
        return await forward()

    @on("_fine", source="client")
    async def fine(self, params: dict):
        return {"fine": True}


class Required(Fails):
    required = True


class Holds(Agent):
    @on("initialize")
    async def initialize(self, params: dict):
        return {"protocolVersion": 1}

    @on("session/prompt")
    async def prompt(self, params: dict):
        await trio.sleep_forever()


class AtImport(Proxy):
    def __init__(self):
        raise TypeError("constructor")


class BeforeYield(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        raise OSError("no database")
        yield
"""


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "fails.py").write_text(PLUGIN)
    return lambda name="Fails", **keys: {"use": f"./fails.py:{name}", "name": "f", **keys}


@pytest.mark.parametrize("method", ["_handler", "_exits", "_task"])
async def test_an_exception_of_a_handler_or_task_fails_only_that_request_or_task(
    tmp_path, plugin, method, autojump_clock
):
    async with played_chain(tmp_path, None, plugin()) as chain:
        await chain.open("s1")
        chain.client.send({"id": 1, "method": method}, {"id": 2, "method": "_fine"})

        received = await chain.client.receive_all()
        [told] = [each for each in received if "method" in each]
        assert "[acp-conductor] f failed in " in told["params"]["update"]["content"]["text"]
        first, second = (each for each in received if "id" in each)
        assert second == {"id": 2, "result": {"fine": True}}
        assert first["id"] == 1
        assert ("error" in first) == (method != "_task")
        if "error" in first:
            assert first["error"]["code"] == -32603
        assert chain.events("component failed") == chain.events("component bypassed") == []


async def test_a_plugin_whose_lifespan_raises_has_failed_and_is_bypassed(
    tmp_path, plugin, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "a"}, plugin(), {"name": "c"}) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)

        chain.client.send({"method": "_break"})

        notice, answer = sorted(await chain.client.receive_all(), key=lambda each: "id" in each)
        place = answer["error"]["data"].pop("place")
        assert place.startswith(f"{tmp_path}/chain.yaml:")
        assert answer["error"]["data"] == {
            "component": "f",
            "exitStatus": "failed: RuntimeError: worn out (fails.py:17)",
            "details": answer["error"]["message"],
            "next": GOES_ON,
        }
        text = (
            f"[acp-conductor] component 'f' failed: RuntimeError: worn out (fails.py:17); {GOES_ON}"
        )
        assert told(notice) == ("s1", text)
        methods = {each["method"] for each in await chain.agent.receive_all()}
        assert "session/cancel" in methods
        chain.finish(request)
        chain.finish(await chain.prompt(2))
        assert await chain.client.receive() == {"id": 2, "result": {"stopReason": "end_turn"}}


@pytest.mark.parametrize(
    ("name", "keys"),
    [("Required", {}), ("Fails", {"required": True}), ("Fails", {"on_failure": "end_chain"})],
)
async def test_the_chain_ends_with_a_plugin_that_must_not_be_bypassed(
    tmp_path, plugin, name, keys, autojump_clock
):
    async with played_chain(tmp_path, None, plugin(name, **keys)) as chain:
        await chain.open("s1")
        await chain.prompt(1)

        chain.client.send({"method": "_break"})

        assert (await chain.client.receive())["error"]["data"]["next"] == "the chain ends"
        assert (await chain.wait_ended()).reason == "failed"


@BOTH
@pytest.mark.parametrize("behind", [[], [{"name": "q"}]])
async def test_a_turn_behind_a_plugin_that_ends_the_chain_ends_at_once_with_its_failure(
    tmp_path, plugin, version, behind, autojump_clock
):
    """Also where no handler of the plugin has seen the prompt."""
    keys = plugin("Breaks", required=True)
    proxies = [{"name": "a"}, keys, *behind]
    async with played_chain(tmp_path, None, *proxies, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        began = trio.current_time()

        chain.client.send({"method": "_break"})

        assert (await chain.wait_ended()).reason == "failed"
        assert trio.current_time() - began < 1
        (end,) = await chain.client.receive_all()
        error = end.pop("error") if version == 1 else end["params"]["update"].pop("error")
        assert end == ({"id": 1} if version == 1 else state("idle", stopReason="error"))
        assert error["message"].startswith("component 'f' failed: RuntimeError: worn out")
        assert error["data"]["component"] == "f"


async def test_what_a_nested_chain_has_sent_on_is_answered_when_its_plugin_ends_it(
    tmp_path, plugin, autojump_clock
):
    """The outer conductor is its successor, too."""
    keys = plugin("Breaks", required=True)
    async with played_chain(tmp_path, None, keys, mode="proxy") as chain:
        outer = chain.client
        outer.send({"id": 0, "method": "proxy/initialize", "params": {"protocolVersion": 1}})
        outer.answer(await outer.receive(), {"protocolVersion": 1})
        assert (await outer.receive())["id"] == 0
        outer.send(prompt(1))
        assert (await outer.receive())["params"]["method"] == "session/prompt"

        outer.send({"method": "_break"})

        ended = trio.current_time()
        answer = (await outer.receive_all())[-1]
        assert (answer["id"], answer["error"]["data"]["component"]) == (1, "f")
        assert (await chain.wait_ended()).reason == "failed"
        assert trio.current_time() == ended


async def test_the_turn_of_an_agent_plugin_is_answered_with_the_failure_that_ends_the_chain(
    tmp_path, plugin, autojump_clock
):
    """Its handler is cancelled."""
    keys = plugin("Breaks", required=True)
    agent = plugin("Holds") | {"name": "agent"}
    async with played_chain(tmp_path, agent, keys) as chain:
        chain.client.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
        assert (await chain.client.receive())["id"] == 0
        chain.client.send(prompt(1))
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()

        chain.client.send({"method": "_break"})

        assert (await chain.client.receive())["error"]["data"]["component"] == "f"
        assert (await chain.wait_ended()).reason == "failed"
        assert trio.current_time() - began < 1


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("AtImport", "TypeError: constructor"),
        ("BeforeYield", "OSError: no database"),
        ("Absent", "Absent"),
    ],
)
async def test_a_plugin_that_fails_before_it_is_ready_is_the_error_of_initialize(
    tmp_path, plugin, name, cause, autojump_clock
):
    """The client may try again."""
    async with played_chain(tmp_path, None, plugin(name)) as chain:
        for id in (1, 2):
            params = {"protocolVersion": 1}
            chain.client.send({"id": id, "method": "initialize", "params": params})
            answer = await chain.client.receive()

            assert answer["id"] == id
            assert answer["error"]["code"] == -32603
            assert cause in answer["error"]["message"]
            assert answer["error"]["data"]["component"] == "f"
            assert answer["error"]["data"]["place"].startswith(f"{tmp_path}/chain.yaml:")
