from __future__ import annotations

import pytest

from conductor.adapters import known_clients
from conductor.adapters.known_clients import KnownClient, is_known_to
from conductor.adapters.negotiated import Announced, announced_by_client


def client(name, version=""):
    return Announced(version=1, capabilities={}, name=name, program_version=version)


@pytest.mark.parametrize("name", ["agent-shell", "Emacs-Agent-Shell"])
def test_a_client_is_known_by_its_name(name):
    assert is_known_to(client(name, "0.57.1"), "refuse_late_updates")
    assert not is_known_to(client(name), "hide_plans")
    assert not is_known_to(client("zed"), "refuse_late_updates")


def test_agent_shell_shows_updates_between_turns_since_0_61_1():
    assert is_known_to(client("agent-shell", "0.60.2"), "refuse_late_updates")
    assert not is_known_to(client("agent-shell", "0.74.3"), "refuse_late_updates")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("CodeCompanion.nvim", True), ("acpx", True), ("", True), ("agent-shell", False)],
)
def test_clients_with_one_option_of_each_kind(name, expected):
    assert is_known_to(client(name, "1.0"), "options_by_kind") == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.9", False), ("1.0", True), ("1.0.10-beta", True), ("1.2", False), ("", False)],
)
def test_versions_are_compared_as_numbers(monkeypatch, version, expected):
    known = KnownClient(name="x", behaviour=frozenset({"hide_plans"}), since="1.0", until="1.2")
    monkeypatch.setattr(known_clients, "KNOWN_CLIENTS", (known,))

    assert is_known_to(client("x", version), "hide_plans") == expected


def test_name_and_version_are_what_initialize_says():
    told = announced_by_client(b'{"clientInfo": {"name": "acpx", "version": "0.1.15"}}')
    assert (told.name, told.program_version) == ("acpx", "0.1.15")
    assert is_known_to(told, "hide_plans")
    assert announced_by_client(b'{"clientInfo": {"version": 3}}').program_version == ""


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (b'{"clientInfo":{"name":"zed"}}', "zed"),
        (b'{"info":{"name":"x"}}', "x"),
        (b"[]", ""),
        (None, ""),
    ],
)
def test_the_name_of_the_client(params, name):
    assert announced_by_client(params).name == name
