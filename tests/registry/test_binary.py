"""Binary distributions: checksums, and nothing unpacked without one."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from conductor.errors import RegistryError
from conductor.registry.binary import install_binary, pin_binary, with_checksum
from conductor.registry.pins import current_platform
from conductor.registry.source import Entry

from .conftest import AGENT, binary_entry, tar_of, zip_of

PLATFORM = current_platform()


def entry_of(url, **more):
    return msgspec.convert(binary_entry(url, **more), Entry)


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.tar.gz", tar_of({"echo": AGENT})), ("a.zip", zip_of({"echo": AGENT})), ("a", b"program")],
)
def test_an_archive_is_pinned_and_installed_with_one_download(server, tmp_path, name, data):
    pin = pin_binary(entry_of(server.put(f"/{name}", data)), PLATFORM)
    assert pin.targets[PLATFORM].sha256 == checksum(data)

    assert install_binary("echo", pin, PLATFORM, tmp_path).program == "echo"
    assert server.asked == [f"/{name}"]


def test_the_checksum_of_the_registry_is_taken_without_a_download(server):
    entry = entry_of(server.put("/a.zip", b""), sha256="A" * 64)

    assert pin_binary(entry, PLATFORM).targets[PLATFORM].sha256 == "A" * 64
    assert server.asked == []


def test_another_archive_than_the_pinned_one_is_refused_with_both_checksums(server, tmp_path):
    data = tar_of({"echo": AGENT})
    pin = pin_binary(entry_of(server.put("/a.tgz", data), sha256="0" * 64), PLATFORM)

    with pytest.raises(RegistryError, match=f"{checksum(data)}, not the pinned {'0' * 64}"):
        install_binary("echo", pin, PLATFORM, tmp_path)
    assert list(tmp_path.glob("echo")) == []


def test_a_refused_download_is_not_taken_the_next_time(server, tmp_path):
    good = tar_of({"echo": AGENT})
    pin = pin_binary(entry_of(server.put("/a.tgz", b"bad"), sha256=checksum(good)), PLATFORM)
    with pytest.raises(RegistryError, match="not the pinned"):
        install_binary("echo", pin, PLATFORM, tmp_path)
    server.put("/a.tgz", good)

    assert install_binary("echo", pin, PLATFORM, tmp_path).program == "echo"


def test_pinning_downloads_anew_what_an_interrupted_run_has_left(server):
    entry = entry_of(server.put("/a.tgz", b"old"))
    pin_binary(entry, PLATFORM)
    server.put("/a.tgz", b"new")

    assert pin_binary(entry, PLATFORM).targets[PLATFORM].sha256 == checksum(b"new")


def test_a_lock_file_of_another_platform_needs_the_checksum_of_this_one(server, tmp_path):
    data = tar_of({"echo": AGENT})
    entry = entry_of(server.put("/a.tgz", data))
    other = msgspec.structs.replace(
        pin_binary(entry_of("https://example.org/a", sha256="0" * 64), PLATFORM),
        targets={PLATFORM: pin_binary(entry, PLATFORM).targets[PLATFORM]},
    )
    target = msgspec.structs.replace(other.targets[PLATFORM], sha256=None)
    unknown = msgspec.structs.replace(other, targets={PLATFORM: target})

    with pytest.raises(RegistryError, match="no checksum of `echo` for this platform"):
        install_binary("echo", unknown, PLATFORM, tmp_path)
    assert with_checksum("echo", unknown, PLATFORM) == other
