"""What docs/mcp.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.bridge_harness import mcp_client

from bridges.bridge import McpBridge
from conductor.chainfile import ComponentSpec, load
from conductor.client.embedding import attach_file
from conductor.testing import FakeAgent, FakeClient, open_chain
from tests.support.plugins import load_plugin

TEXT = (Path(__file__).parent.parent.parent / "docs" / "mcp.md").read_text()
MODES = TEXT.partition("| value |")[2].partition("## ")[0]


def block(language, first_line=""):
    [found] = re.findall(rf"```{language}\n({first_line}.*?)```", TEXT, re.DOTALL)
    return found


@pytest.fixture
def chain(tmp_path):
    """The example in a chain, and its notes."""
    (tmp_path / "notes.py").write_text(block("python", "# notes.py"))
    notes = tmp_path / "notes.md"
    notes.write_text("milk\nmore milk\nbread\n")
    file = tmp_path / "chain.yaml"
    use = f"proxies: [{{use: ./notes.py:Notes, with: {{file: {notes}}}}}]\n"
    file.write_text(block("yaml", "version: 1\nmcp_bridge") + use)
    return file, notes


@pytest.mark.parametrize(
    ("prompt", "said", "left"),
    [
        ('call Notes search {"words": "milk", "limit": 1}', "milk", "milk\nmore milk\nbread\n"),
        ('call Notes write {"text": "eggs"}', "written", "milk\nmore milk\nbread\neggs\n"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_the_example_gives_the_agent_its_tools(chain, prompt, said, left, version):
    file, notes = chain
    async with attach_file(FakeClient, load(str(file))) as attached:
        client = attached.client
        await client.initialize(version=version)
        await client.prompt_turn(await client.new_session("/"), prompt)
        chunks = [
            record_update.params["update"]["content"]["text"]
            for record_update in client.transcript.of("session/update")
            if record_update.params["update"]["sessionUpdate"] == "agent_message_chunk"
        ]

    assert said in "".join(chunks)
    assert "bread" not in "".join(chunks)
    assert notes.read_text() == left


@pytest.mark.parametrize("mode", re.findall(r"^\| `(\w+)`", MODES, re.MULTILINE))
def test_every_mode_of_the_page_is_one(tmp_path, mode):
    file = tmp_path / "chain.yaml"
    file.write_text(block("yaml", "version: 1\nmcp_bridge").replace("auto", mode))
    assert load(str(file)).mcp_bridge == mode


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_wiki_offers_its_pages_and_a_prompt(tmp_path, mode):
    (tmp_path / "wiki.py").write_text(block("python", "# wiki.py"))
    (tmp_path / "start.md").write_text("# Start")
    (tmp_path / ".git").mkdir()
    plugin = load_plugin(
        ComponentSpec(name="wiki", use=f"{tmp_path}/wiki.py:Wiki", options={"pages": str(tmp_path)})
    )
    agent = FakeAgent()
    async with open_chain(plugin, McpBridge(), agent, bridged=False) as client:
        await client.initialize()
        await client.new_session(str(tmp_path))
        [opened] = agent.transcript.of("session/new", "request")
        wiki, git = opened.params["mcpServers"]
        async with mcp_client(wiki, mode=mode) as mcp:
            [read] = (await mcp.read_resource("wiki://start")).contents
            [message] = (await mcp.get_prompt("explain", {"name": "start"})).messages

    assert (read.text, read.mime_type) == ("# Start", "text/markdown")
    assert message.content.text == "Explain this page to a newcomer:\n\n# Start"
    assert (git["name"], git["args"]) == ("git", ["mcp-server-git"])
