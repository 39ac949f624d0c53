"""`check` tells of programs of proxies that are not installed."""

from __future__ import annotations

import sys

import pytest

from conductor.proxy.commands import program_warning
from proxies.context import PromptContext
from proxies.failover import Failover, OtherAgent
from proxies.hooks import Hook, Hooks

MISSING = "command not found: no-such-program"


@pytest.mark.parametrize(
    ("argv", "warning"),
    [
        ([], None),
        ([sys.executable], None),
        (["sh", "no-such-program"], None),
        (["no-such-program"], MISSING),
        (["/no-such-program"], "command not found: /no-such-program"),
        (["./begins/at/the/session"], None),
    ],
)
def test_a_program_that_is_not_installed(argv, warning):
    assert program_warning(argv) == warning


def test_proxies_that_start_programs_tell(tmp_path):
    agents = [
        OtherAgent(run=["sh"]),
        OtherAgent(run=["no-such-program"], name="other"),
        OtherAgent(chain=tmp_path / "no.yaml"),
    ]
    assert Failover(agents).option_warnings() == [
        ("agents", f"other: {MISSING}"),
        ("agents", f"no: there is no file {tmp_path}/no.yaml"),
    ]
    hook = Hook(events=["permission"], run=["no-such-program"])
    by_url = Hook(events=["error"], url="http://127.0.0.1:1/")
    assert Hooks([hook, by_url]).option_warnings() == [("hooks", MISSING)]
    assert PromptContext(command=["no-such-program"]).option_warnings() == [("command", MISSING)]
