from __future__ import annotations

import pytest

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.hide_tools import HideTools

TOOLS = [{"name": "list"}, {"name": "delete"}]
SERVER = {"type": "acp", "name": "github", "serverId": "s1"}
READ = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Read", "kind": "read"}
DONE = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}


async def answers(chain, proxy, *messages, respond):
    """The responses to the agent's requests, errors included."""
    found = []

    async def ask(session):
        for method, params in messages:
            try:
                found.append(await agent.endpoint.request(method, params))
            except RequestError as exc:
                found.append(exc.message)

    agent = FakeAgent(turns=[[ask]], capabilities={"mcpCapabilities": {"acp": True}})
    async with chain(proxy, agent, bridged=False) as client:
        client.handlers.update(respond)
        await client.initialize()
        session = await client.new_session("/work", [SERVER])
        await client.prompt(session, "go")
    return found


def stateless(method, **params):
    request = {"serverId": "s1", "requestId": "r1", "method": method}
    return "mcp/message", request | ({"params": params} if params else {})


@pytest.mark.parametrize("glob", ["delete", "github/del*", "*/delete"])
async def test_a_hidden_tool_is_neither_listed_nor_called(chain, glob):
    called = []

    def server(params):
        if params["method"] == "tools/list":
            return {"result": {"tools": [*TOOLS]}}
        called.append(params["params"]["name"])
        return {"result": {"content": []}}

    found = await answers(
        chain,
        HideTools([glob]),
        stateless("tools/list"),
        stateless("tools/call", name="delete"),
        stateless("tools/call", name="list"),
        respond={"mcp/message": server},
    )

    assert found == [
        {"result": {"tools": [{"name": "list"}]}},
        {"error": {"code": -32602, "message": "Unknown tool: delete"}},
        {"result": {"content": []}},
    ]
    assert called == ["list"]


async def test_tools_of_other_servers_stay(chain):
    found = await answers(
        chain,
        HideTools(["gitlab/*"]),
        stateless("tools/list"),
        respond={"mcp/message": lambda params: {"result": {"tools": TOOLS}}},
    )

    assert found == [{"result": {"tools": TOOLS}}]


async def test_tools_hidden_from_the_client_are_visible_to_the_agent(chain):
    def server(params):
        return {"result": {"tools": TOOLS}}

    found = await answers(
        chain,
        HideTools(["delete"], hide_from="client"),
        stateless("tools/list"),
        stateless("tools/call", name="delete"),
        respond={"mcp/message": server},
    )

    assert found == [{"result": {"tools": TOOLS}}] * 2


@pytest.mark.parametrize("key", ["serverId", "acpId"])
async def test_a_server_that_is_connected_to_is_known_by_its_connection(chain, key):
    def message(method, **params):
        return "mcp/message", {"connectionId": "k1", "method": method, "params": params}

    found = await answers(
        chain,
        HideTools(["github/delete"]),
        ("mcp/connect", {key: "s1"}),
        message("tools/list"),
        message("tools/call", name="delete"),
        ("mcp/disconnect", {"connectionId": "k1"}),
        message("tools/list"),
        respond={
            "mcp/connect": lambda params: {"connectionId": "k1"},
            "mcp/disconnect": lambda params: {},
            "mcp/message": lambda params: {"tools": [*TOOLS]},
        },
    )

    refused = "Unknown tool: delete"
    listed = {"tools": [{"name": "list"}]}
    assert found == [{"connectionId": "k1"}, listed, refused, {}, {"tools": TOOLS}]


async def test_hidden_tool_calls_are_not_shown_and_others_are(chain):
    other = {**READ, "toolCallId": "c2", "kind": "edit", "title": "mcp__github__list"}
    done = {**DONE, "toolCallId": "c2"}
    mcp = {**READ, "toolCallId": "c3", "kind": "other", "title": "mcp__github__delete"}
    agent = FakeAgent(turns=[[READ, other, mcp, DONE, done, "hi"]])
    proxy = HideTools(["github/delete"], kinds=["read"], hide_from="client")
    async with chain(proxy, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

        updates = client.transcript.updates()
        assert [update.get("toolCallId") for update in updates] == ["c2", "c2", None]


async def test_a_hidden_tool_call_is_shown_when_permission_is_asked_for_it(chain):
    async def ask(session):
        call = {"toolCallId": "c1"}
        params = {"sessionId": session, "toolCall": call, "options": [{"optionId": "a"}]}
        await agent.endpoint.request("session/request_permission", params)

    pending = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "pending"}
    agent = FakeAgent(turns=[[READ, pending, ask, DONE]])
    async with chain(HideTools(kinds=["read"], hide_from="client"), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

        assert client.transcript.updates() == [{**READ, "status": "pending"}, DONE]
        client.transcript.check_order(
            "session/update tool_call",
            "session/request_permission?",
            "session/update tool_call_update",
        )


async def test_in_version_2_pieces_of_a_hidden_call_are_hidden_too(chain):
    call = {**READ, "sessionUpdate": "tool_call_update"}
    piece = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c1", "content": {}}
    agent = FakeAgent(turns=[[call, piece, {**piece, "toolCallId": "c2"}]])
    async with chain(HideTools(kinds=["read"], hide_from="client"), agent) as client:
        await client.initialize(version=2)
        await client.prompt_turn(await client.new_session("/work"), "go")

        _, *shown, _ = client.transcript.updates()  # without the states of the turn
        assert shown == [{**piece, "toolCallId": "c2"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "nothing to hide"), ({"kinds": ["read"]}, "add `hide_from: client`")],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        HideTools(**options)
