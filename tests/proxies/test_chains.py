"""The example chains load, and what their first lines promise is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor.plugins.loading import entry_points
from conductor.testing import open_chain

CHAINS = Path(__file__).parents[2] / "chains"

# A prompt, and what the answer has in it.
PROMISED = {
    "additional_directories": ("say hello", "hello"),
    "boolean_options": ("say hello", "hello"),
    "budget": ("say hello", "hello"),
    "checkpoint": ("/rewind", "There are no checkpoints of this directory."),
    "context": ("echo", "Answer briefly."),
    "cursor_questions": ("say hello", "hello"),
    "elicitation": ("say hello", "hello"),
    "failover": ("say hello", "hello"),
    "hide_tools": ("say hello", "hello"),
    "hooks": ("say hello", "hello"),
    "journal": ("say hello", "hello"),
    "known_kinds": ("say hello", "hello"),
    "local_files": ("say hello", "hello"),
    "local_terminals": ("say hello", "hello"),
    "log_messages": ("echo", "Answer briefly."),
    "mcp_servers": ("say hello", "hello"),
    "normalize": ("say hello", "hello"),
    "notices": ("say hello", "hello"),
    "path_map": ("say hello", "hello"),
    "permissions": ("ask Deploy", "Deploy: reject"),
    "prompt_content": ("say hello", "hello"),
    "plan_approval": ("say hello", "hello"),
    "queue": ("/queue", "No prompt waits."),
    "rate_limit": ("say hello", "hello"),
    "redact": ("say AKIAABCDEFGHIJKLMNOP", "[redacted:aws-key-id:1]"),
    "remember": ("say hello", "hello"),
    "session_processes": ("say hello", "hello"),
    "subagents": ("say hello", "hello"),
    "system_prompt": ("echo", "British English"),
    "v1_v2": ("say hello", "hello"),
    "turn_updates": ("say hello", "hello"),
    "usage": ("/usage", "The agent has not reported any usage yet."),
}

WITHOUT_EXAMPLE = {"mcp_tools", "sandbox_guard"}
"""`mcp_tools` needs a server; the guard is placed by the conductor, before an agent's `sandbox`."""


@pytest.mark.parametrize("name", PROMISED)
async def test_an_example_does_what_its_first_lines_say(name, tmp_path):
    prompt, said = PROMISED[name]
    async with open_chain(CHAINS / f"{name}.yaml") as client:
        await client.initialize()
        session = await client.new_session(str(tmp_path))
        assert (await client.prompt(session, prompt))["stopReason"] == "end_turn"
        assert said in client.transcript.text()


def test_every_proxy_is_announced_and_has_an_example():
    modules = {path.stem for path in (CHAINS.parent / "proxies").glob("[!_]*")} - {"shared"}
    ours = {
        name for name, point in entry_points().items() if point.value.startswith("proxies.")
    } - WITHOUT_EXAMPLE

    assert ours == modules - WITHOUT_EXAMPLE == set(PROMISED)
