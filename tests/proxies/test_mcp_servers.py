from __future__ import annotations

import os

import attrs
import pytest
import trio

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from proxies.mcp_servers import McpServers, Server

THEIRS = {"name": "files", "command": "/bin/files", "args": [], "env": []}
HTTP = {"mcpCapabilities": {"http": True, "sse": False}}


def stdio(name, command="/bin/x"):
    return {"name": name, "command": command, "args": [], "env": []}


async def servers_of(
    chain, *entries, cwd="/work", version=1, capabilities=HTTP, name="claude", texts=None
):
    """The MCP servers that the agent is told of when the client has one; `texts` gets notices."""
    answer = {"protocolVersion": version, "agentCapabilities": capabilities}
    answer |= {"agentInfo": {"name": name, "version": "1"}}
    if version == 2:
        answer = {"protocolVersion": 2, "info": answer["agentInfo"], "capabilities": capabilities}
    agent = FakeAgent(handlers={"initialize": lambda params: answer})
    async with chain(McpServers(list(entries)), agent, bridged=False) as client:
        await client.initialize(version=version)
        await client.new_session(cwd, [THEIRS])
        if texts is not None:
            with trio.fail_after(5):
                while not client.transcript.text():
                    await trio.lowlevel.checkpoint()
            texts.append(client.transcript.text())
    return agent.transcript.of("session/new", "request")[0].params["mcpServers"]


async def test_a_server_is_added_after_those_of_the_client(chain):
    command = ["/bin/docs", "--fast"]
    found = await servers_of(chain, Server("docs", command, env={"KEY": "v"}))

    env = [{"name": "KEY", "value": "v"}]
    added = {"name": "docs", "command": "/bin/docs", "args": ["--fast"], "env": env}
    assert found == [THEIRS, added]


async def test_a_program_is_given_by_its_absolute_path(chain):
    found = await servers_of(chain, Server("a", ["sh"]), Server("b", ["no-such-program"]))

    assert os.path.isabs(found[1]["command"])
    assert found[2]["command"] == "no-such-program"


def test_check_warns_of_programs_that_are_not_there(tmp_path):
    tool = tmp_path / "tool"
    tool.touch(mode=0o755)
    entries = [
        Server("there", ["sh"]),
        Server("web", url="https://example.org"),
        Server("lost", ["no-such-program", "-x"]),
        Server("elsewhere", ["tool"], env={"PATH": str(tmp_path)}),
        Server("lost elsewhere", ["sh"], env={"PATH": str(tmp_path)}),
    ]
    warned = McpServers(entries).option_warnings()

    assert [option for option, _ in warned] == ["servers"] * 2
    assert "MCP server lost: command not found: no-such-program" in warned[0][1]
    assert "MCP server lost elsewhere: command not found: sh" in warned[1][1]


async def test_one_with_the_same_name_is_replaced_where_it_stands(chain):
    found = await servers_of(
        chain, Server("docs", ["/bin/x"]), Server("files", ["/bin/x"]), Server("docs", ["/bin/y"])
    )

    assert found == [stdio("files"), stdio("docs", "/bin/y")]


async def test_servers_are_removed_by_name(chain):
    removed = Server("f*", remove=True)

    assert await servers_of(chain, Server("g", ["/bin/x"]), removed) == [stdio("g")]
    assert await servers_of(chain, Server("x", remove=True)) == [THEIRS]


@pytest.mark.parametrize(
    ("entry", "cwd", "meant"),
    [
        ({"cwd": ["/work/**"]}, "/work/a/b", True),
        ({"cwd": ["/work"]}, "/work/a", True),
        ({"cwd": ["/work"]}, "/work/../home", False),
        ({"cwd": ["/work"]}, "/workshop", False),
        ({"cwd": ["~/src"]}, os.path.expanduser("~/src/x"), True),
        ({"agent": ["codex*", "claude"]}, "/work", True),
        ({"agent": ["codex*"]}, "/work", False),
        ({"agent": ["claude"], "cwd": ["/home"]}, "/work", False),
    ],
)
async def test_an_entry_is_for_projects_and_agents(chain, entry, cwd, meant):
    found = await servers_of(chain, Server("x", ["/bin/x"], **entry), cwd=cwd)

    assert found == ([THEIRS, stdio("x")] if meant else [THEIRS])


async def test_a_url_is_given_to_an_agent_that_takes_it(chain):
    http = Server("api", url="https://x.example/mcp", headers={"Authorization": "Bearer 1"})
    sse = Server("old", url="https://x.example/sse", type="sse")

    assert await servers_of(chain, http, sse) == [
        THEIRS,
        {
            "type": "http",
            "name": "api",
            "url": "https://x.example/mcp",
            "headers": [{"name": "Authorization", "value": "Bearer 1"}],
        },
    ]


async def test_a_server_that_nothing_connects_to_is_left_out_with_a_notice(chain):
    texts = []
    sse = Server("old", url="https://x.example/sse", type="sse")

    assert await servers_of(chain, sse, texts=texts) == [THEIRS]
    assert "MCP server old is left out: neither the agent nor the MCP bridge" in texts[0]
    with pytest.raises(RequestError, match="MCP server old: neither the agent"):
        await servers_of(chain, attrs.evolve(sse, required=True))


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [(1, {"mcpCapabilities": {"acp": True}}), (2, {"session": {"mcp": {"acp": {}}}})],
)
async def test_the_bridge_connects_to_servers_of_types_that_the_agent_lacks(
    chain, version, capabilities
):
    sse = Server("old", url="https://x.example/sse", type="sse")
    found = await servers_of(chain, sse, version=version, capabilities=capabilities)

    assert [each["name"] for each in found] == ["files", "old"]


async def test_the_bridge_refuses_sessions_only_if_the_chain_file_requires_servers(chain):
    def refuse(params):
        raise RequestError(-32603, "MCP server 'docs' did not start", {"mcpServer": "docs"})

    agent = FakeAgent(handlers={"session/new": refuse})
    async with chain(McpServers([Server("docs", ["/bin/x"])]), agent, bridged=False) as client:
        await client.initialize()
        with pytest.raises(RequestError, match="did not start"):
            await client.new_session("/work")


async def test_version_2_names_the_type_and_has_the_capabilities_elsewhere(chain):
    http = Server("api", url="https://x.example/mcp")
    capabilities = {"session": {"mcp": {"stdio": {}, "http": {}}}}
    found = await servers_of(
        chain, Server("x", ["/bin/x"]), http, version=2, capabilities=capabilities
    )

    assert found[1] == {"type": "stdio", **stdio("x")}
    assert found[2]["type"] == "http"


def strict_agent(refused):
    """An agent that refuses sessions with this server, and names it."""

    def new_session(params):
        if any(each["name"] == refused for each in params["mcpServers"]):
            raise RequestError(-32603, "Internal error", f"Failed to start server '{refused}'")
        return {"sessionId": "s1"}

    return FakeAgent(handlers={"session/new": new_session})


async def test_a_session_that_is_refused_for_an_added_server_is_set_up_without_it(chain):
    agent = strict_agent("docs")
    entries = [Server("docs", ["/bin/x"]), Server("doc", ["/bin/y"])]
    async with chain(McpServers(entries), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session("/work", [THEIRS])

        with trio.fail_after(5):
            while not client.transcript.text():
                await trio.lowlevel.checkpoint()

    set_ups = agent.transcript.of("session/new", "request")
    assert [each["name"] for each in set_ups[-1].params["mcpServers"]] == ["files", "doc"]
    assert "The agent refused MCP server docs" in client.transcript.text()


@pytest.mark.parametrize(
    ("refused", "entry"),
    [("docs", Server("docs", ["/bin/x"], required=True)), ("files", Server("docs", ["/bin/x"]))],
    ids=["required", "another one"],
)
async def test_a_refusal_is_passed_on(chain, refused, entry):
    async with chain(McpServers([entry]), strict_agent(refused), bridged=False) as client:
        await client.initialize()
        with pytest.raises(RequestError):
            await client.new_session("/work", [THEIRS])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of `command`, `url` and `remove: true`"),
        ({"command": ["x"], "url": "y"}, "one of"),
        ({"url": "x", "env": {"A": "b"}}, "`env` belongs to a `command`"),
        ({"command": ["x"], "headers": {"A": "b"}}, "`headers` belong to a `url`"),
    ],
)
def test_an_entry_is_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Server("x", **options)


def test_secrets_are_not_shown():
    shown = repr(
        [Server("x", ["x"], env={"A": "s3cret"}), Server("x", url="", headers={"A": "s3cret"})]
    )
    assert "s3cret" not in shown
