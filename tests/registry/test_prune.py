"""Packages that are not in use are removed from the store."""

from __future__ import annotations

import os
import subprocess

import msgspec
import pytest

from conductor.errors import RegistryError
from conductor.registry.lock_file import write_lock
from conductor.registry.pins import UvxPin, sealed
from conductor.registry.prune import PrunedPackage, prune
from conductor.registry.resolve import resolved
from conductor.registry.store import InstalledPackage, installing, package_directory, try_lock
from conductor.registry.uses import note_lock_file

from .conftest import agent_spec


def installed(version: str):
    """Install a program `echo` of ten bytes; returns its pin."""
    pin = sealed(UvxPin("echo", version, "3.11", (f"echo=={version}",)))
    with installing("echo", pin) as staging:
        (staging.directory / "echo").write_bytes(b"#!/bin/cat")
        (staging.directory / "echo").chmod(0o700)
        staging.record = InstalledPackage("echo")
    return pin


@pytest.fixture
def versions(tmp_path):
    """Versions 1 to 3 are installed; a lock file that is in use refers to 2."""
    pins = {version: installed(version) for version in ("1", "2", "3")}
    lock = tmp_path / "review.lock"
    write_lock(str(lock), {"echo": pins["2"]})
    note_lock_file(str(lock))
    return pins


def names(found):
    return [each.version for each in found]


def exists(pins):
    return [version for version, pin in pins.items() if package_directory("echo", pin).exists()]


def test_versions_of_no_lock_file_are_removed(versions):
    found = list(prune())

    assert names(found) == ["1", "3"]
    assert all(isinstance(each, PrunedPackage) and each.size > 10 for each in found)
    assert exists(versions) == ["2"]
    assert not package_directory("echo", versions["1"]).parent.exists()


def test_a_dry_run_removes_nothing(versions):
    assert names(prune(dry_run=True)) == ["1", "3"]
    assert exists(versions) == ["1", "2", "3"]


def test_a_lock_file_that_is_gone_keeps_nothing(versions, tmp_path, store):
    (tmp_path / "review.lock").unlink()

    assert names(prune()) == ["1", "2", "3"]
    assert (store / "lock-files").read_bytes() == b""
    assert list((store / "packages").iterdir()) == []


def test_a_start_makes_a_lock_file_known(versions, tmp_path, chain):
    path = chain(more="")
    write_lock(str(path.with_name("other.lock")), {"echo": versions["3"]})
    other = path.rename(path.with_name("other.yaml"))

    assert resolved(agent_spec(other)).run is not None

    assert names(prune()) == ["1"]


def test_a_lock_file_that_cannot_be_read_stops_it(versions, tmp_path):
    (tmp_path / "review.lock").write_text("{")

    with pytest.raises(RegistryError, match=r"review\.lock is unusable"):
        list(prune())

    assert exists(versions) == ["1", "2", "3"]


def test_a_package_of_a_running_program_stays(versions):
    directory = package_directory("echo", versions["1"])
    with subprocess.Popen(["tail", "-f", str(directory / "echo")], stdout=subprocess.PIPE) as runs:
        assert runs.stdout.read(10) == b"#!/bin/cat"  # its command line can be read from now on
        assert names(prune()) == ["3"]
        runs.kill()

    assert names(prune()) == ["1"]


def test_a_package_that_is_being_installed_stays(versions):
    with try_lock(f"echo-{package_directory('echo', versions['1']).name}") as locked:
        assert locked
        assert names(prune()) == ["3"]


def test_pins_without_a_lock_file_are_kept_for_thirty_days(versions, store):
    paths = {}
    for version in ("1", "3"):
        paths[version] = store / "pins" / f"{version}.json"
        paths[version].parent.mkdir(exist_ok=True)
        paths[version].write_bytes(msgspec.json.encode(versions[version]))
    os.utime(paths["1"], (1, 1))

    assert names(prune()) == ["1"]
    assert not paths["1"].exists()
    assert paths["3"].exists()


def test_what_an_interrupted_installation_left_is_removed_after_a_day(versions, store):
    staging = store / "staging"
    for name in ("old.download", "new.download"):
        (staging / name).touch()
    (staging / "echo-old").mkdir()
    for name in ("old.download", "echo-old"):
        os.utime(staging / name, (1, 1))

    list(prune())

    assert [path.name for path in staging.iterdir()] == ["new.download"]
