"""Where a registry comes from: snapshot, refreshed copy, file, URL."""

from __future__ import annotations

import json

import pytest

from conductor.errors import RegistryError
from conductor.registry import source
from conductor.registry.npm import split_package
from conductor.registry.pypi import split_requirement
from conductor.registry.source import NotFetched, load_registry, refresh_registry

from .conftest import entry, offline


def document(*entries: object) -> bytes:
    return json.dumps({"version": "1.0.0", "agents": entries}).encode()


def test_the_shipped_snapshot_is_used_without_network(monkeypatch):
    offline(monkeypatch)
    registry = load_registry(None)

    assert registry.described == "shipped snapshot of the ACP registry, 2026-11-23"
    assert registry.find("claude-acp").distribution.npx is not None


def test_every_entry_of_the_snapshot_names_one_version_of_a_package():
    for each in load_registry(None).entries.values():
        distribution = each.distribution
        assert distribution.npx or distribution.uvx
        if distribution.npx is not None:
            assert split_package(distribution.npx.package)[1] == each.version
        if distribution.uvx is not None:
            assert split_requirement(distribution.uvx.package)[1].endswith(f"=={each.version}")


def test_a_refreshed_copy_replaces_the_snapshot(server, monkeypatch):
    monkeypatch.setattr(source, "OFFICIAL_URL", server.put("/r.json", document(entry("new"))))
    refresh_registry(None)

    assert list(load_registry(None).entries) == ["new"]


def test_a_copy_older_than_the_snapshot_is_not_used(server, monkeypatch):
    monkeypatch.setattr(source, "OFFICIAL_URL", server.put("/r.json", document(entry("old"))))
    refresh_registry(None)
    path = source._copy_path(source.OFFICIAL_URL)
    copy = json.loads(path.read_bytes())
    path.write_text(json.dumps({**copy, "date": "2025-01-01"}))

    assert "claude-acp" in load_registry(None).entries


def test_a_registry_of_ones_own_is_a_file(registry_file):
    assert list(load_registry(str(registry_file(entry("mine")))).entries) == ["mine"]


def test_the_environment_names_a_registry(registry_file, monkeypatch):
    monkeypatch.setenv("ACP_CONDUCTOR_REGISTRY", str(registry_file(entry("mine"))))

    assert list(load_registry(None).entries) == ["mine"]


def test_a_registry_at_a_url_is_fetched_by_refresh_alone(server):
    url = server.put("/r.json", document(entry("mine")))

    with pytest.raises(NotFetched, match="has not been fetched"):
        load_registry(url)
    assert server.asked == []
    refresh_registry(url)
    assert list(load_registry(url).entries) == ["mine"]
    assert server.asked == ["/r.json"]


def test_what_is_fetched_and_no_registry_leaves_the_copy_as_it_was(server):
    url = server.put("/r.json", document(entry("mine")))
    refresh_registry(url)
    server.put("/r.json", b"<html>log in</html>")

    with pytest.raises(RegistryError, match="is not JSON"):
        refresh_registry(url)
    assert list(load_registry(url).entries) == ["mine"]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(RegistryError, match="cannot be read: No such file"):
        load_registry(str(tmp_path / "nothing.json"))


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_REGISTRY_BYTES", 10)
    path = tmp_path / "r.json"
    path.write_bytes(document())

    with pytest.raises(RegistryError, match="is larger"):
        load_registry(str(path))
