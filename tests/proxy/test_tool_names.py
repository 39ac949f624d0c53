"""Permission requests of real agents, and what the rules take them for."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import yaml

from conductor.proxy import Proxy, on_permission
from conductor.proxy.tool_names import Evidence, identify, tool_table
from conductor.testing import FakeAgent
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule
from proxies.shared.tool_calls.call import Call

AGENTS = yaml.safe_load(Path(__file__).with_name("agents_tool_calls.yaml").read_text())


def name(entry):
    return f"{entry['agent']} {entry['version']}: {entry.get('case', 'an MCP tool')}"


@attrs.define
class Naming(Proxy):
    """Record the names of tools in permission requests."""

    names: list[str | None] = attrs.field(factory=list, init=False)

    @on_permission
    async def see(self, session, asked, forward):
        self.names.append(asked.tool)
        return await forward()


async def answer(chain, entry, *rules):
    """The kind of the option that the agent is answered with; "asked" if the client was."""
    return await answer_of(chain, entry, Permissions(list(rules)))


async def answer_of(chain, entry, proxy):
    answers, asked = [], []
    about = {"protocolVersion": 1, "agentInfo": {"name": entry["agent"], "version": "1"}}
    agent = FakeAgent(handlers={"initialize": lambda params: about})

    async def ask(session):
        params = {"sessionId": session, **entry["request"]}
        answers.append(await agent.endpoint.request("session/request_permission", params))

    async def by_the_user(params):
        asked.append(params)
        return {"outcome": {"outcome": "cancelled"}}

    agent.turns.append([*entry.get("announced", ()), ask])
    async with chain(proxy, agent) as client:
        client.handlers["session/request_permission"] = by_the_user
        await client.initialize()
        servers = [
            {"name": each, "command": "x", "args": [], "env": []}
            for each in entry.get("servers", ())
        ]
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": servers})
        await client.prompt(opened["sessionId"], "go")
    if asked:
        return "asked"
    chosen = answers[0]["outcome"].get("optionId")
    return next(one["kind"] for one in entry["request"]["options"] if one["optionId"] == chosen)


TOOLS = [each for each in AGENTS if "tool" in each]
QUESTIONS = [each for each in AGENTS if "about" in each]


@pytest.mark.parametrize("entry", TOOLS, ids=name)
async def test_an_mcp_tool_is_allowed_if_it_is_known_for_sure(chain, entry):
    expected = "allow_once" if entry.get("sure", True) else "asked"

    assert await answer(chain, entry, Rule("allow_once", mcp_tool=[entry["tool"]])) == expected
    server = entry["tool"].partition("/")[0]
    assert await answer(chain, entry, Rule("allow_once", mcp_tool=[f"{server}/*"])) == expected


@pytest.mark.parametrize("entry", [*TOOLS, *QUESTIONS], ids=name)
async def test_on_permission_has_the_canonical_name_of_a_sure_tool(chain, entry):
    proxy = Naming()
    assert await answer_of(chain, entry, proxy) == "asked"

    (found,) = proxy.names
    if "tool" not in entry or not entry.get("sure", True) or entry["tool"].endswith("/*"):
        assert found is None
    else:
        assert found == entry["tool"]


async def test_on_permission_has_the_agents_name_of_a_built_in_tool(chain):
    call = {"toolCallId": "1", "title": "ls", "_meta": {"claudeCode": {"toolName": "Bash"}}}
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    entry = {"agent": "claude-agent-acp", "request": {"toolCall": call, "options": options}}
    proxy = Naming()
    await answer_of(chain, entry, proxy)
    await answer_of(chain, {**entry, "agent": "unknown"}, proxy)

    assert proxy.names == ["Bash", None]


@pytest.mark.parametrize("entry", TOOLS, ids=name)
async def test_an_mcp_tool_is_denied(chain, entry):
    globs = [entry["tool"].replace("*", "search")]

    assert await answer(chain, entry, Rule("deny", mcp_tool=globs)) == "reject_once"


@pytest.mark.parametrize("entry", [each for each in TOOLS if each.get("sure", True)], ids=name)
async def test_a_rule_for_another_tool_is_not_about_it(chain, entry):
    for action in ("deny", "allow_once"):
        assert await answer(chain, entry, Rule(action, mcp_tool=["other/*"])) == "asked"


@pytest.mark.parametrize("entry", QUESTIONS, ids=name)
async def test_a_request_without_a_tool_call_is_decided_only_by_a_rule_that_names_it(chain, entry):
    kind = entry["request"]["toolCall"].get("kind")
    rules = [
        Rule("allow_once"),
        Rule("allow_always", title="."),
        Rule("allow_once", mcp_tool=["*"]),
        Rule("allow_once", kind=["fetch", "other", "execute", "read"]),
        Rule("deny", kind=["fetch", "other", "execute", "read"]),
    ]

    assert await answer(chain, entry, *rules) == "asked"
    assert await answer(chain, entry, Rule("deny", about=[entry["about"]])) == "reject_once"
    if kind == "switch_mode":
        assert await answer(chain, entry, Rule("deny", kind=[kind])) == "reject_once"


async def test_two_answers_that_allow_once_are_left_to_the_user(chain):
    (entry,) = (each for each in QUESTIONS if "two ways" in each.get("case", ""))

    assert await answer(chain, entry, Rule("allow_once", about=["plan"])) == "asked"


@pytest.mark.parametrize(
    ("servers", "told", "tools"),
    [
        (["docs"], "mcp__docs__a", ["docs/a"]),
        (["docs"], "mcp__docs-2__a", ["docs/a"]),
        (["docs", "docs-2"], "mcp__docs-2__a", ["docs-2/a"]),
        (["my docs"], "mcp__my_docs__a", ["my docs/a"]),
        (["my docs", "my-docs"], "mcp__my_docs__a", ["my docs/a", "my-docs/a"]),
        ([], "mcp__a__b__c", ["a/b__c", "a__b/c"]),
        # The agent may have a server `a` of its own configuration.
        (["a__b"], "mcp__a__b__c", ["a/b__c", "a__b/c"]),
        ([], "Bash", ["Bash"]),
    ],
)
def test_a_name_is_read_with_the_servers_that_the_session_declares(servers, told, tools):
    said = Evidence(asked={"_meta": {"claudeCode": {"toolName": told}}})
    found = identify(tool_table("claude-agent-acp"), said, servers)

    assert found.sure
    assert sorted(tool.texts[0] for tool in found.tools) == tools


def test_a_name_that_can_mean_two_tools_is_denied_for_each_and_allowed_for_both():
    table = tool_table("claude-agent-acp")
    members = {"kind": "other", "_meta": {"claudeCode": {"toolName": "mcp__a__b__c"}}}
    call = Call.of(members, cwd="/w", session="s", agent="claude", table=table)

    assert Rule("deny", mcp_tool=["a/*"]).matches(call)
    assert Rule("deny", mcp_tool=["a__b/c"]).matches(call)
    assert not Rule("allow_once", mcp_tool=["a/*"]).matches(call)
    assert Rule("allow_once", mcp_tool=["a/*", "a__b/c"]).matches(call)


def test_a_name_that_the_agent_cut_is_of_any_tool():
    told = "mcp__docs__" + "x" * 60
    members = {"kind": "other", "_meta": {"toolName": told}}
    call = Call.of(members, cwd="", session="s", agent="q", table=tool_table("qwen-code"))

    assert Rule("deny", mcp_tool=["other/*"]).matches(call)
    assert not Rule("allow_once", mcp_tool=["docs/*"]).matches(call)


def test_a_built_in_tool_is_no_mcp_tool():
    members = {"kind": "other", "_meta": {"claudeCode": {"toolName": "Bash"}}}
    call = Call.of(members, cwd="", session="s", agent="c", table=tool_table("claude"))

    assert not Rule("allow_once", mcp_tool=["*"]).matches(call)
    assert Rule("deny", mcp_tool=["Bash"]).matches(call)
    assert not Rule("deny", mcp_tool=["docs/*"]).matches(call)
