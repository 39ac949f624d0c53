"""The table of what agents ask before, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import yaml

from conductor.proxy.agent_questions import TABLE, AgentQuestions, agent_questions

DOCS = Path(__file__).parents[2] / "docs" / "proxies.md"
WORDS = {True: "asks", False: "no", "model": "a model decides"}


def test_what_an_agent_does_without_asking_is_told_with_version_mode_and_setting():
    found = AgentQuestions(
        "Agent",
        "1.2",
        "2026-11-28",
        asks={"read": False, "write": False, "command": "model"},
        mode="auto",
        remedy="`ask = true`",
        then={"read": False, "write": True, "command": True},
    )

    assert found.text() == (
        "Agent 1.2 with default settings (mode `auto`) does not ask before it reads a file or "
        "writes a file, and lets a model decide whether it asks before it runs a command (measured "
        "2026-11-28)"
    )
    assert found.help() == "with `ask = true` it asks before it writes a file or runs a command"
    assert not found.is_governed


def test_an_agent_that_asks_before_everything_measured_is_not_mentioned():
    found = AgentQuestions("Agent", "1.2", "2026-11-28", asks={"write": True, "command": True})

    assert (found.text(), found.is_governed) == (None, True)
    assert agent_questions("An unknown agent") is None


def test_every_entry_is_in_the_documentation():
    entries = yaml.safe_load(TABLE.read_text())
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")]

    assert len(entries) == 7
    for each in entries:
        asks = " | ".join(WORDS[each["asks"][kind]] for kind in ("read", "write", "command"))
        setting = each.get("remedy", "none is known")
        named = f"{each['agent']} {each['version']}"
        assert f"| {named} | `{each['mode']}` | {asks} | {setting} |" in rows
        assert str(each["date"]) in DOCS.read_text()
