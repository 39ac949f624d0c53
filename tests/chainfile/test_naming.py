"""Default names of components."""

from __future__ import annotations

import pytest

from conductor.chainfile.naming import command_name


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["claude-agent-acp"], "claude-agent-acp"),
        (["/opt/bin/agent", "--acp"], "agent"),
        (["python3.11", "-u", "tools/my_proxy.py", "--db", "x"], "my_proxy"),
        (["python", "-m", "conductor.testing.agent"], "conductor.testing.agent"),
        (["python", "-c", "print()"], "python"),
        (["npx", "-y", "@org/agent@1.2.3"], "agent"),
        (["uv", "run", "proxy.py"], "proxy"),
        (["node"], "node"),
    ],
)
def test_a_command_is_named_after_the_program_that_it_runs(argv: list[str], name: str) -> None:
    assert command_name(argv) == name
