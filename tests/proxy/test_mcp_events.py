"""`@on_mcp`: requests of the agent to MCP servers over ACP, in each binding."""

from __future__ import annotations

import pytest

from conductor.proxy import Proxy, RequestError, on_mcp
from conductor.testing import FakeAgent

NOTES = {"type": "acp", "name": "notes", "serverId": "s1"}
REFUSED = {"code": -32602, "message": "Unknown tool: delete"}


class Filter(Proxy):
    def __init__(self):
        self.seen = []

    @on_mcp("tools/call")
    async def call(self, server, params, forward):
        self.seen.append((server, params["name"]))
        if params["name"] == "delete":
            raise RequestError(REFUSED["code"], REFUSED["message"])
        params["name"] = f"{server}_{params['name']}"
        return {**await forward(), "seen": True}


async def results(acp_chain, proxy, *messages, respond):
    """The responses to the agent's requests; errors as a text."""
    found = []

    async def ask(session):
        for method, params in messages:
            try:
                found.append(await agent.endpoint.request(method, params))
            except RequestError as exc:
                found.append(exc.message)

    agent = FakeAgent(turns=[[ask]], capabilities={"mcpCapabilities": {"acp": True}})
    async with acp_chain(proxy, agent) as client:
        client.handlers["mcp/connect"] = lambda params: {"connectionId": "c1"}
        client.handlers["mcp/message"] = respond
        await client.initialize()
        session = await client.new_session("/work", [NOTES])
        await client.prompt(session, "go")
    return found


def call(name, **members):
    return "mcp/message", {**members, "method": "tools/call", "params": {"name": name}}


@pytest.mark.parametrize("key", ["serverId", "acpId"])
async def test_requests_of_a_connection(acp_chain, key):
    proxy = Filter()
    found = await results(
        acp_chain,
        proxy,
        ("mcp/connect", {key: "s1"}),
        call("list", connectionId="c1"),
        call("delete", connectionId="c1"),
        call("list", connectionId="other"),
        respond=lambda params: {"called": params["params"]["name"]},
    )

    assert found[1:] == [
        {"called": "notes_list", "seen": True},
        REFUSED["message"],
        {"called": "_list", "seen": True},
    ]
    assert proxy.seen == [("notes", "list"), ("notes", "delete"), ("", "list")]


async def test_requests_of_the_binding_without_connections(acp_chain):
    def respond(params):
        return {"result": {"called": params["params"]["name"]}, "_meta": {"own": 1}}

    found = await results(
        acp_chain,
        Filter(),
        call("list", serverId="s1", requestId="r1"),
        call("delete", serverId="s1", requestId="r2"),
        respond=respond,
    )

    assert found == [
        {"result": {"called": "notes_list", "seen": True}, "_meta": {"own": 1}},
        {"error": REFUSED},
    ]


async def test_an_error_of_the_server_and_one_of_the_binding_stay_what_they_are(acp_chain):
    def respond(params):
        if params["serverId"] == "s1":
            return {"error": {"code": -1, "message": "no", "data": {"a": 1}}}
        raise RequestError(-33001, "no such server")

    found = await results(
        acp_chain,
        Filter(),
        call("list", serverId="s1", requestId="r1"),
        call("list", serverId="s2", requestId="r2"),
        respond=respond,
    )

    assert found == [{"error": {"code": -1, "message": "no", "data": {"a": 1}}}, "no such server"]


async def test_requests_of_other_methods_keep_their_bytes(acp_chain):
    proxy, params = Filter(), {"connectionId": "c1", "method": "tools/list"}
    found = await results(acp_chain, proxy, ("mcp/message", params), respond=lambda params: params)

    assert found == [params]
    assert proxy.seen == []


async def test_a_server_has_no_name_once_its_session_has_ended_or_was_refused(acp_chain):
    def opened(params):
        if params["cwd"] == "/refused":
            raise RequestError(-32000, "no")
        return {"sessionId": "session-1"}

    proxy = Filter()
    agent = FakeAgent(handlers={"session/new": opened, "session/close": lambda params: {}})
    async with acp_chain(proxy, agent) as client:
        client.handlers["mcp/connect"] = lambda params: {"connectionId": "c1"}
        client.handlers["mcp/message"] = lambda params: {"result": {}}
        await client.initialize()
        await client.new_session("/work", [NOTES])
        await agent.endpoint.request("mcp/connect", {"serverId": "s1"})
        await agent.endpoint.request(*call("list", connectionId="c1"))
        await client.request("session/close", {"sessionId": "session-1"})
        with pytest.raises(RequestError):
            await client.new_session("/refused", [{**NOTES, "serverId": "s2"}])
        await agent.endpoint.request(*call("list", connectionId="c1"))
        await agent.endpoint.request(*call("list", serverId="s2", requestId="r"))

    assert proxy.seen == [("notes", "list"), ("", "list"), ("", "list")]
