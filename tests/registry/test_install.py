"""Pinning and installing: which kind is taken, what is reported."""

from __future__ import annotations

import json

import msgspec
import pytest

from conductor.errors import RegistryError
from conductor.registry.install import (
    ensure_installed,
    fetched_registry,
    install_unlocked,
    make_pin,
)
from conductor.registry.resolve import pin_path
from conductor.registry.source import Entry

from .conftest import AGENT, binary_entry, entry, offline, path_without_tools, tar_of


def entry_of(raw):
    return msgspec.convert(raw, Entry)


def test_a_package_is_installed_once_and_reported(server, capfd, monkeypatch):
    url = server.put("/echo.tgz", tar_of({"echo": AGENT}))
    pin = make_pin(entry_of(binary_entry(url)), scripts=False)
    first = ensure_installed("echo", pin)
    assert "installing echo 1.0.0 from its release, once" in capfd.readouterr().err

    server.bodies.clear()
    offline(monkeypatch)
    assert ensure_installed("echo", pin) == first
    assert capfd.readouterr().err == ""


def test_the_pin_of_what_was_installed_is_kept_for_the_entry_as_it_is(server):
    url = server.put("/echo.tgz", b"damaged")
    known = entry_of(binary_entry(url))
    with pytest.raises(RegistryError, match="cannot be unpacked"):
        install_unlocked(known, scripts=False)
    assert not pin_path(known, "binary", False).exists()

    server.put("/echo.tgz", tar_of({"echo": AGENT}))
    install_unlocked(known, scripts=False)

    assert pin_path(known, "binary", False).exists()
    newer = entry_of(binary_entry(f"{server.url}/echo-2.tgz"))
    assert not pin_path(newer, "binary", False).exists()
    assert not pin_path(known, "binary", True).exists()


def test_the_first_kind_whose_package_manager_is_there_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", path_without_tools(tmp_path))
    both = entry_of(entry(npx={"package": "echo@1"}, uvx={"package": "not a package"}))

    with pytest.raises(RegistryError, match="the name of a PyPI package"):  # uv is there
        make_pin(both, scripts=False)
    with pytest.raises(RegistryError, match="`npm` is not installed"):
        make_pin(entry_of(entry(npx={"package": "echo@1"})), scripts=False)


def test_a_registry_at_a_url_is_fetched_when_it_is_needed(server):
    url = server.put("/r.json", json.dumps({"agents": [entry(uvx={"package": "x"})]}).encode())

    assert fetched_registry(url).find("echo").id == "echo"
    assert fetched_registry(url).find("echo").id == "echo"
    assert server.asked == ["/r.json"]
