"""The registry's format: entries, platforms, near matches."""

from __future__ import annotations

import json

import pytest

from conductor.errors import RegistryError
from conductor.registry.source import parse_registry

from .conftest import entry

TARGET = {"archive": "https://example.org/a.tgz", "cmd": "./a"}


def registry(*agents, **more):
    return parse_registry(json.dumps({"agents": agents, **more}).encode(), "test", "2026-11-23")


def test_an_entry_has_its_distributions():
    found = registry(
        entry("claude-acp", npx={"package": "@a/b@1.2.3", "args": ["--acp"], "env": {"N": "1"}})
    ).find("claude-acp")

    assert found.distribution.npx is not None
    assert (found.distribution.npx.package, found.distribution.npx.args) == (
        "@a/b@1.2.3",
        ("--acp",),
    )
    assert found.distribution.npx.env == {"N": "1"}


def test_unknown_members_and_unusable_entries_are_ignored():
    good = {**entry("good", uvx={"package": "x"}), "preview": {"version": "2"}, "icon": "./i.svg"}
    found = registry({"id": "no-distribution"}, 7, entry("Not An Id", uvx={"package": "x"}), good)

    assert list(found.entries) == ["good"]


def test_proxies_are_found_in_lists_of_their_own():
    found = registry(extensions=[entry("notes", uvx={"package": "notes"})])

    assert found.find("notes").id == "notes"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"agents": {}}', b"[" * 100_000])
def test_what_is_no_registry_is_refused(data):
    with pytest.raises(RegistryError, match="the registry test"):
        parse_registry(data, "test", "2026-11-23")


@pytest.mark.parametrize("name", ["claud-acp", "claude", "claude-acp-2"])
def test_an_unknown_name_has_near_matches(name):
    with pytest.raises(RegistryError, match="did you mean `claude-acp`") as caught:
        registry(entry("claude-acp", uvx={"package": "x"})).find(name)

    assert f"has no `{name}`" in caught.value.message


def test_the_test_agent_is_none_of_the_registry():
    with pytest.raises(RegistryError, match="the built-in agent is written `use: test-agent`"):
        registry(entry("agent", uvx={"package": "x"})).find("test-agent")


def test_a_binary_is_preferred_where_there_is_one():
    found = registry(entry("both", npx={"package": "x"}, binary={"linux-x86_64": TARGET})).find(
        "both"
    )

    assert list(found.kinds("linux-x86_64")) == ["binary", "npx"]
    assert list(found.kinds("darwin-aarch64")) == ["npx"]


def test_an_unsupported_platform_is_told_the_others():
    found = registry(entry("some", binary={"linux-x86_64": TARGET, "darwin-aarch64": TARGET})).find(
        "some"
    )

    with pytest.raises(RegistryError, match="windows-x86_64; it has: linux-x86_64, darwin-aarch64"):
        list(found.kinds("windows-x86_64"))
