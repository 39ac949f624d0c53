"""What `show` and `check` say about a name of the registry."""

from __future__ import annotations

import msgspec
import pytest

from conductor.errors import RegistryError
from conductor.registry.install import ensure_installed, make_pin
from conductor.registry.pins import UvxPin, write_lock
from conductor.registry.resolve import registry_status
from conductor.registry.source import load_registry

from .conftest import AGENT, agent_spec, binary_entry, put_into_store, tar_of


def test_a_name_that_nothing_is_known_of_has_the_version_of_the_registry(
    chain, registry_file, store
):
    registry_file(binary_entry("https://example.org/a.tgz", "2.0.0"))
    status = registry_status(agent_spec(chain()).registry)

    assert str(status) == "2.0.0 (not locked, not installed)"
    assert status.command == ()
    assert not store.parent.exists()


def test_a_locked_name_has_its_own_version_and_command(chain, registry_file, server):
    url = server.put("/a.tgz", tar_of({"echo": AGENT}))
    registry = load_registry(str(registry_file(binary_entry(url, "2.0.0", args=["acp"]))))
    pin = make_pin(registry.find("echo"), scripts=False)
    path = chain()
    write_lock(str(path.with_suffix(".lock")), {"echo": pin})
    name = agent_spec(path).registry
    detail = "binary, checksums of 1 of 1 platforms"

    assert str(registry_status(name)) == f"2.0.0 ({detail}, locked, not installed)"
    directory, _ = ensure_installed("echo", pin)
    assert str(registry_status(name)) == f"2.0.0 ({detail}, locked, installed)"
    assert registry_status(name).command == (str(directory / "echo"), "acp")


def test_an_unknown_name_is_an_error(chain, registry_file):
    registry_file()

    with pytest.raises(RegistryError, match="has no `echo`"):
        registry_status(agent_spec(chain()).registry)


def test_other_packages_than_those_that_are_installed_are_not_installed(chain, registry_file):
    registry_file()
    pin = UvxPin("echo", "1.0.0", "3.11", ("echo==1.0.0 --hash=sha256:0",))
    put_into_store(pin)
    changed = msgspec.structs.replace(pin, requirements=("evil==1.0.0 --hash=sha256:1",))
    path = chain()
    states = []
    for each in (pin, changed):
        write_lock(str(path.with_suffix(".lock")), {"echo": each})
        states.append(str(registry_status(agent_spec(path).registry)))

    detail = "1.0.0 (uvx, 1 package, locked"
    assert states == [f"{detail}, installed)", f"{detail}, not installed)"]
