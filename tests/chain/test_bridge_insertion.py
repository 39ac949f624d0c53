"""The bridge is inserted into a running chain; its failure is the error of the request."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from support.mcp_providers import declaration
from support.memory_chain import running_chain
from support.plugins import plugin

from bridges.bridge import McpBridge
from conductor.chain.bridge_insertion import BridgeInsertion
from conductor.chain.build import bridge_component
from conductor.errors import RequestError, StartError
from conductor.limits import Limits
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, tool
from conductor.testing import FakeAgent, open_chain


def insertion(agent, make):
    return BridgeInsertion(
        agent.link, make, lambda bridge: agent._host.insert(bridge, before=agent)
    )


WITH_SERVER = {"cwd": "/", "mcpServers": [declaration("serverId")]}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (StartError("mcp-bridge", "no room"), "no room"),
        (ImportError("no module"), "ImportError: no module"),
    ],
)
async def test_a_bridge_that_cannot_be_made_is_the_error_of_that_request(problem, message):
    agent = FakeAgent()
    diagnostics = [problem]

    def make():
        if diagnostics:
            raise diagnostics.pop()
        return bridge_component("auto", Limits())

    async with open_chain(agent, bridged=False) as client:
        await client.initialize()
        agent.link.plain.insert(insertion(agent, make))
        with pytest.raises(RequestError, match=message):
            await client.request("session/new", WITH_SERVER)
        assert await client.new_session("/")
        assert await client.request("session/new", WITH_SERVER)  # tried again

    given = [h.params["mcpServers"] for h in agent.transcript if h.method == "session/new"]
    assert [len(servers) for servers in given] == [0, 1]
    assert "command" in given[1][0]


async def test_a_bridge_that_cannot_be_prepared_is_not_in_the_chain(monkeypatch):
    agent = FakeAgent()

    def refuse(component, host):
        raise StartError("mcp-bridge", "not now")

    async with open_chain(agent, bridged=False) as client:
        await client.initialize()
        components = client.attached.chain.components
        agent.link.plain.insert(insertion(agent, lambda: bridge_component("auto", Limits())))
        with monkeypatch.context() as patch:
            patch.setattr(PluginComponent, "prepare", refuse)
            with pytest.raises(RequestError, match="not now"):
                await client.request("session/new", WITH_SERVER)
        assert components == [agent]
        assert await client.request("session/new", WITH_SERVER)
        assert [isinstance(each.plugin, McpBridge) for each in components[:-1]] == [True]


async def test_an_inserted_bridge_leaves_the_agent_what_it_can_connect_to_itself():
    """It was not in the chain when the agent said so."""
    agent = FakeAgent(capabilities={"mcpCapabilities": {"http": True}})
    server = {"type": "http", "name": "notes", "url": "http://127.0.0.1:1/mcp", "headers": []}

    async with open_chain(agent, bridged=False) as client:
        await client.initialize()
        agent.link.plain.insert(insertion(agent, lambda: bridge_component("auto", Limits())))
        await client.request("session/new", {"cwd": "/", "mcpServers": [server]})

    (given,) = [h.params["mcpServers"] for h in agent.transcript if h.method == "session/new"]
    assert given == [server]


@attrs.define(eq=False)
class Unlucky(McpBridge):
    """`problem` is what its lifespan raises: at once or, if `late` is given, after it yielded."""

    problem: BaseException | None = None
    late: trio.Event | None = None

    @asynccontextmanager
    async def lifespan(self):
        if self.problem is None:
            await trio.sleep_forever()
        if self.late is None:
            raise self.problem
        async with McpBridge.lifespan(self), trio.open_nursery() as nursery:
            nursery.start_soon(self._fail)
            yield

    async def _fail(self):
        await self.late.wait()
        raise self.problem


def unlucky(problem=None, late=None):
    bridge = Unlucky(problem=problem, late=late)
    return PluginComponent("mcp-bridge", bridge, "proxy", bypassed_on_failure=True)


@pytest.mark.parametrize("problem", [OSError("no disk"), BaseException("odd")])
async def test_a_bridge_that_does_not_start_is_the_error_of_that_request(problem):
    agent = FakeAgent()
    makers = [lambda: unlucky(problem), lambda: bridge_component("auto", Limits())]

    async with open_chain(agent, bridged=False) as client:
        await client.initialize()
        components = client.attached.chain.components
        agent.link.plain.insert(insertion(agent, lambda: makers.pop(0)()))
        with pytest.raises(RequestError, match=type(problem).__name__):
            await client.request("session/new", WITH_SERVER)
        assert components == [agent]
        assert await client.new_session("/")
        assert await client.request("session/new", WITH_SERVER)  # tried again

    given = [h.params["mcpServers"] for h in agent.transcript if h.method == "session/new"]
    assert [len(servers) for servers in given] == [0, 1]


async def test_a_bridge_that_does_not_come_up_in_time_is_the_error_of_that_request(autojump_clock):
    agent = FakeAgent()

    async with open_chain(agent, bridged=False) as client:
        await client.initialize()
        agent.link.plain.insert(insertion(agent, unlucky))
        with pytest.raises(RequestError, match="did not yield within 30 s"):
            await client.request("session/new", WITH_SERVER)
        assert await client.new_session("/")


async def test_a_bridge_that_fails_later_is_removed_and_inserted_again():
    agent = FakeAgent()
    late = trio.Event()
    makers = [lambda: unlucky(OSError("gone"), late), lambda: bridge_component("auto", Limits())]

    async with open_chain(agent, bridged=False) as client:
        await client.initialize()
        agent.link.plain.insert(insertion(agent, lambda: makers.pop(0)()))
        assert await client.request("session/new", WITH_SERVER)
        late.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await client.new_session("/")
        assert await client.request("session/new", WITH_SERVER)

    given = [h.params["mcpServers"] for h in agent.transcript if h.method == "session/new"]
    assert [len(servers) for servers in given] == [1, 0, 1]
    assert all("command" in server for servers in given for server in servers)


class Notes(Proxy):
    @tool
    async def note(self, text: str) -> str:
        """Keep a note."""
        return text


V1 = {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}}
V1_ACP = {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": True}}}
V2 = {"protocolVersion": 2, "capabilities": {"session": {"mcp": {"stdio": {}}}}}
V2_ACP = {"protocolVersion": 2, "capabilities": {"session": {"mcp": {"stdio": {}, "acp": {}}}}}


@pytest.mark.parametrize(
    ("answer", "type"), [(V1, None), (V1_ACP, "acp"), (V2, "stdio"), (V2_ACP, "acp")]
)
async def test_a_chain_of_proxies_brings_its_bridge_if_its_conductor_announces_none(answer, type):
    make_bridge = partial(bridge_component, "auto", Limits())
    chain = running_chain([plugin("notes", Notes())], mode="proxy", make_bridge=make_bridge)
    with trio.fail_after(20):
        async with chain as conductor:
            version = {"protocolVersion": answer["protocolVersion"]}
            conductor.client.send({"id": 0, "method": "proxy/initialize", "params": version})
            asked = await conductor.client.receive()
            conductor.client.answer(asked, answer)
            initialized = await conductor.client.receive()
            for id in (1, 2):
                params = {"cwd": "/", "mcpServers": []}
                conductor.client.send({"id": id, "method": "session/new", "params": params})
                set_up = await conductor.client.receive()
                conductor.client.answer(set_up, {"sessionId": f"s{id}"})
                assert (await conductor.client.receive())["result"] == {"sessionId": f"s{id}"}
            names = [each.name for each in conductor.chain.components]

    assert initialized == {"id": 0, "result": answer}
    assert set_up["method"] == "proxy/successor"
    assert set_up["params"]["method"] == "session/new"
    [server] = set_up["params"]["params"]["mcpServers"]
    assert (server.get("type"), server["name"]) == (type, "Notes")
    assert ("command" in server) is (type != "acp")
    assert names == ["notes", *(["mcp-bridge"] if type != "acp" else [])]
