"""What docs/mcp.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.testing import FakeClient

TEXT = (Path(__file__).parent.parent.parent / "docs" / "mcp.md").read_text()
MODES = TEXT.partition("| value |")[2].partition("## ")[0]


def block(language):
    [found] = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


@pytest.fixture
def chain(tmp_path):
    """The example in a chain, and its notes."""
    (tmp_path / "notes.py").write_text(block("python"))
    notes = tmp_path / "notes.md"
    notes.write_text("milk\nmore milk\nbread\n")
    file = tmp_path / "chain.yaml"
    use = f"proxies: [{{use: ./notes.py:Notes, with: {{file: {notes}}}}}]\n"
    file.write_text(block("yaml") + use)
    return file, notes


@pytest.mark.parametrize(
    ("prompt", "said", "left"),
    [
        ('call Notes search {"words": "milk", "limit": 1}', "milk", "milk\nmore milk\nbread\n"),
        ('call Notes write {"text": "eggs"}', "written", "milk\nmore milk\nbread\neggs\n"),
    ],
)
async def test_the_example_gives_the_agent_its_tools(chain, prompt, said, left):
    file, notes = chain
    async with attach_file(FakeClient, load(str(file))) as attached:
        client = attached.client
        await client.initialize()
        await client.prompt(await client.new_session("/"), prompt)
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
    file.write_text(block("yaml").replace("auto", mode))
    assert load(str(file)).mcp_bridge == mode
