"""`acp-conductor registry`, from the outside."""

from __future__ import annotations

import json
import sys

import pytest

from conductor.registry.pins import current_platform

COMMAND = [sys.executable, "-m", "conductor"]


@pytest.fixture
def registry(tmp_path):
    binary = {"archive": "https://example.org/a.tgz", "cmd": "./a", "sha256": "0" * 64}
    distribution = {
        "npx": {"package": "@a/b@1.0.0", "args": ["--acp"], "env": {"A": "1"}},
        "binary": {"linux-x86_64": binary},
    }
    entry = {"id": "mine", "name": "Mine", "version": "1.0.0", "description": "Works"}
    path = tmp_path / "registry.json"
    path.write_text(json.dumps({"agents": [{**entry, "distribution": distribution}]}))
    return path


def test_the_names_are_listed_with_version_and_kinds(run, registry):
    lines = run("registry", "list", "--registry", registry).stdout.splitlines()

    assert lines[:2] == [
        "name  version  kinds       description",
        "mine  1.0.0    binary,npx  Works",
    ]
    assert lines[2].startswith(f"1 entries; {registry}, ")


def test_an_entry_is_shown_with_its_commands_and_checksums(run, registry):
    lines = run("registry", "show", "mine", "--registry", registry).stdout.splitlines()

    assert lines[:-1] == [
        "mine 1.0.0: Mine",
        "  Works",
        "  npx: @a/b@1.0.0 --acp",
        "    env: A=1",
        f"  linux-x86_64: https://example.org/a.tgz sha256:{'0' * 64}",
        "    ./a",
    ]


@pytest.mark.parametrize("variable", [True, False])
def test_an_unknown_name_has_near_matches(run, registry, variable):
    arguments = [] if variable else ["--registry", registry]
    env = {"ACP_CONDUCTOR_REGISTRY": str(registry)} if variable else {}
    result = run("registry", "show", "mien", *arguments, env=env)

    assert result.returncode == 1
    assert "has no `mien`\nhelp: did you mean `mine`?" in result.stderr


def test_refresh_reports_what_cannot_be_fetched(run, tmp_path):
    result = run("registry", "refresh", "--registry", "https://127.0.0.1:9/registry.json")

    assert result.returncode == 1
    assert "https://127.0.0.1:9/registry.json cannot be fetched" in result.stderr


ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e"
"""Writes to the clipboard, clears the screen, turns the direction of the text."""


def test_a_registry_does_not_control_the_terminal(run, tmp_path):
    archive = {"archive": f"https://127.0.0.1:1/{ESCAPES}/a.tgz", "cmd": ESCAPES, "args": [ESCAPES]}
    package = {"package": f"a{ESCAPES}", "args": [ESCAPES], "env": {ESCAPES: ESCAPES}}
    platform = current_platform()
    entry = {
        **dict.fromkeys(("name", "version", "description", "license", "repository"), ESCAPES),
        "id": "mine",
        "distribution": {"npx": package, "binary": {platform: archive}},
    }
    registry, chain = tmp_path / "registry.json", tmp_path / "chain.yaml"
    registry.write_text(json.dumps({"agents": [entry]}))
    chain.write_text("version: 1\nregistry: ./registry.json\nagent: mine\n")
    commands = [
        ("registry", "list", "--registry", registry),
        ("registry", "show", "mine", "--registry", registry),
        *((name, chain) for name in ("check", "show", "lock", "update")),
    ]
    for command in commands:
        done = run(*command)
        assert not set("\x1b\x07\u202e") & set(done.stdout + done.stderr), command
