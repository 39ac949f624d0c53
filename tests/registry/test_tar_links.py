"""Links in a tar: none leads out, and nothing is written through one."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from conductor.errors import RegistryError
from conductor.registry.archive import unpack


def tar(*members):
    """An archive of (name, link) and (name, content) pairs; a link is a pair (type, target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                member.type, member.linkname = content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def symlink(target):
    return tarfile.SYMTYPE, target


@pytest.fixture
def unpacked(tmp_path):
    def run(*members):
        download = tmp_path / "download"
        download.write_bytes(tar(*members))
        directory = tmp_path / "out"
        directory.mkdir()
        unpack(download, "https://example.org/a.tar.gz", directory, "run")
        return directory

    return run


def test_links_inside_of_the_archive_are_kept(unpacked):
    directory = unpacked(
        ("lib/real.so.1", b"x"),
        ("lib/real.so", symlink("real.so.1")),
        ("bin/run", symlink("../lib/real.so")),
        ("copy", (tarfile.LNKTYPE, "lib/real.so.1")),
    )

    assert (directory / "bin/run").read_bytes() == (directory / "copy").read_bytes() == b"x"


def test_a_chain_of_links_longer_than_a_path_can_be_does_not_lead_out(unpacked, tmp_path):
    """CVE-2025-4517: `realpath` gives up, and the data filter takes the last link for inner."""
    members, path = [], ""
    for letter in "abcdefghijklmnop":
        members += [(f"{path}{letter}", symlink("d" * 247))]
        path += "d" * 247 + "/"
        members += [(f"{path}file", b"")]
    deep = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    members += [(deep, symlink("../" * 16)), ("escape", symlink(f"{deep}/.."))]

    with pytest.raises(RegistryError):
        unpacked(*members, ("escape/evil", b"x"))

    assert os.listdir(tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["link/file", "link", "a/../link/file"])
def test_nothing_is_written_through_a_link(unpacked, name):
    with pytest.raises(RegistryError, match="through a link"):
        unpacked(("directory/x", b""), ("link", symlink("directory")), (name, b"x"))


@pytest.mark.parametrize("target", ["x/..", "../directory/../../y", "..", "a/../../b"])
def test_a_link_that_may_lead_out_is_refused(unpacked, target):
    with pytest.raises(RegistryError):
        unpacked(("directory/x", b""), ("link", symlink(target)))


@pytest.mark.parametrize("target", ["missing", "link", "directory", "link/x"])
def test_a_hard_link_leads_to_a_file_of_the_archive(unpacked, target):
    # The second text is of `realpath`, to which the data filter of newer Pythons leaves "link/x".
    with pytest.raises(RegistryError, match=r"no file of it|Not a directory"):
        unpacked(
            ("directory/x", b""),
            ("link", symlink("directory/x")),
            ("copy", (tarfile.LNKTYPE, target)),
        )
