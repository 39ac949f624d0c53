"""What docs/mcp.md shows of server objects of the MCP SDK reaches the agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bridge_harness import mcp_client
from support.doc_snippets import ROOT, snippets

from bridges.bridge import McpBridge
from conductor.testing import FakeAgent, open_chain

[WIKI] = [each for each in snippets(ROOT / "docs/mcp.md") if each.file_name == "wiki.py"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_wiki_offers_its_pages_and_a_prompt(tmp_path: Path, mode: str):
    (tmp_path / "tea.md").write_text("Boil water.")
    (tmp_path / ".git").mkdir()
    page: dict[str, type] = {}
    exec(compile(WIKI.text, "wiki.py", "exec"), page)
    agent = FakeAgent()
    async with open_chain(page["Wiki"](str(tmp_path)), McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session(str(tmp_path))
        [given] = [each.params for each in agent.transcript if each.method == "session/new"]
        wiki, git = given["mcpServers"]
        async with mcp_client(wiki, mode=mode) as mcp:
            [read] = (await mcp.read_resource("wiki://tea")).contents
            [asked] = (await mcp.get_prompt("explain", {"name": "tea"})).messages

    assert (read.text, read.mime_type) == ("Boil water.", "text/markdown")
    assert asked.content.text == "Explain this page to a newcomer:\n\nBoil water."
    assert (wiki["name"], git["name"]) == ("wiki", "git")
