"""Lock files: what is written is read again; damaged ones are refused."""

from __future__ import annotations

import json
import os

import pytest

from conductor.errors import RegistryError
from conductor.registry.pins import (
    BinaryPin,
    BinaryTarget,
    NpxPin,
    UvxPin,
    read_lock,
    write_lock,
)
from conductor.registry.source import load_registry

PINS = {
    "b": BinaryPin(
        "1.0.0", {"linux-x86_64": BinaryTarget("https://a/b.tgz", "./b", sha256="0" * 64)}
    ),
    "n": NpxPin("n", "1.0.0", "sha512-x", {"node_modules/n": {"version": "1.0.0"}}),
    "u": UvxPin("u", "1.0.0", "3.12", ("u==1.0.0 --hash=sha256:0",), args=("--acp",)),
}


def test_pins_are_read_as_written(tmp_path):
    path = str(tmp_path / "review.lock")
    write_lock(path, PINS)

    assert read_lock(path).pins == PINS


def test_a_missing_lock_file_is_empty(tmp_path):
    assert read_lock(str(tmp_path / "review.lock")).pins == {}
    assert read_lock(str(tmp_path / "file" / "review.lock")).pins == {}


def test_a_lock_file_that_another_user_has_put_into_a_shared_directory_is_refused(
    tmp_path, monkeypatch
):
    path = tmp_path / "review.lock"
    write_lock(str(path), PINS)
    if os.geteuid() == 0:
        os.chown(path, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert read_lock(str(path)).pins == PINS  # a directory of a team

    tmp_path.chmod(0o1777)

    with pytest.raises(RegistryError, match="belongs to another user"):
        read_lock(str(path))


def test_a_lock_file_does_not_depend_on_the_order_of_the_names(tmp_path):
    first, second = tmp_path / "a.lock", tmp_path / "b.lock"
    write_lock(str(first), PINS)
    write_lock(str(second), dict(reversed(PINS.items())))

    assert first.read_bytes() == second.read_bytes()


def test_a_lock_file_keeps_its_mode_and_leaves_no_draft(tmp_path):
    path = tmp_path / "review.lock"
    path.write_text("{}")
    path.chmod(0o640)
    write_lock(str(path), PINS)

    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["review.lock"]


def test_a_lock_file_without_pins_is_removed(tmp_path):
    path = tmp_path / "review.lock"
    write_lock(str(path), PINS)
    write_lock(str(path), {})

    assert not path.exists()


@pytest.mark.parametrize("text", ["", '{"pins": {"n": {"kind": "deb"}}}'])
def test_a_damaged_lock_file_is_refused(tmp_path, text):
    path = tmp_path / "review.lock"
    path.write_text(text)

    with pytest.raises(RegistryError, match=r"review\.lock is unusable"):
        read_lock(str(path))


def test_a_lock_file_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "review.lock"
    path.write_text(json.dumps({"version": 2, "pins": {}}))

    with pytest.raises(RegistryError, match="its version is 2"):
        read_lock(str(path))


@pytest.mark.parametrize("read", [read_lock, load_registry])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_would_block_or_never_end_is_refused(tmp_path, read, kind):
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")

    with pytest.raises(RegistryError, match="not a regular file"):
        read(str(path))
