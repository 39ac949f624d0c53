"""Lock and update: pins are kept until they are to be renewed, each chain file has its own."""

from __future__ import annotations

import pytest

from conductor.chainfile import load
from conductor.cli.registry import lock_and_report
from conductor.errors import RegistryError
from conductor.registry.install import lock_components, refresh_sources
from conductor.registry.pins import BinaryPin, BinaryTarget, read_lock, write_lock

from .conftest import AGENT, agent_spec, binary_entry, tar_of


@pytest.fixture
def release(server, registry_file):
    """Publish a version of `echo` in the registry."""

    def publish(version: str) -> None:
        url = server.put(f"/echo-{version}.tgz", tar_of({"echo": AGENT, "version": version}))
        registry_file(binary_entry(url, version))

    return publish


def lock(path, update=()):
    """Lock a chain file; versions before and after, by name."""
    return {
        each.name: (each.before and each.before.version, each.pin.version)
        for each in lock_components(load(path).flat(), update)
    }


def test_an_archive_that_was_replaced_is_pinned_by_update_alone(
    release, chain, server, store, capsys
):
    release("1.0.0")
    path = chain()
    lock(path)
    lock(path, {"echo"})
    assert list((store / "staging").iterdir()) == []

    server.put("/echo-1.0.0.tgz", tar_of({"echo": AGENT, "version": "other"}))
    lock_and_report(load(path).flat())
    lock_and_report(load(path).flat(), {"echo"})

    kept, changed = capsys.readouterr().out.splitlines()
    assert kept.endswith("unchanged)")
    assert changed.endswith("another archive of the same version)")


def test_names_that_are_no_longer_used_leave_the_lock_file(release, chain):
    release("1.0.0")
    path = chain()
    old = BinaryPin("1.0.0", {"linux-x86_64": BinaryTarget("https://a/b.tgz", "./b")})
    write_lock(str(path.with_suffix(".lock")), {"old": old})
    lock(path)

    assert list(read_lock(str(path.with_suffix(".lock"))).pins) == ["echo"]


def test_a_nested_chain_file_has_a_lock_file_of_its_own(release, chain, tmp_path):
    release("1.0.0")
    inner = tmp_path / "inner.yaml"
    inner.write_text("version: 1\nregistry: ./registry.json\nproxies: [{registry: echo}]\n")
    path = chain("{run: echo}", "proxies: [{chain: ./inner.yaml}]\n")
    lock(path)

    assert inner.with_suffix(".lock").exists()
    assert not path.with_suffix(".lock").exists()


def test_a_registry_that_cannot_be_refreshed_is_reported(chain):
    spec = agent_spec(chain(more="registry: https://127.0.0.1:9/registry.json\n"))

    (warning,) = refresh_sources([spec])
    assert warning.startswith("the registry was not refreshed: https://127.0.0.1:9/")


def test_a_lock_file_that_cannot_be_written_is_an_error(release, chain, monkeypatch):
    release("1.0.0")
    path = chain()
    path.with_suffix(".lock").mkdir()

    with pytest.raises(RegistryError, match=r"the lock file .*review\.lock cannot be"):
        lock(path)
