"""Archives: unpacked inside their directory, or refused; no link leads out."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile

import pytest

from conductor.errors import RegistryError
from conductor.registry.binary import program_in, unpack

from .conftest import tar_of, zip_of


@pytest.fixture
def unpacked(tmp_path):
    """Unpack bytes as if they came from this URL; returns the directory."""

    def run(data, url="https://example.org/a.tar.gz", cmd="./bin/echo"):
        download = tmp_path / "download"
        download.write_bytes(data)
        directory = tmp_path / "out"
        directory.mkdir()
        unpack(download, url, directory, cmd)
        return directory

    return run


def test_the_program_of_a_tar_is_executable(unpacked):
    directory = unpacked(tar_of({"bin/echo": "#!/bin/sh\n"}, mode=0o644))

    assert program_in(directory, "./bin/echo") == "bin/echo"
    assert os.access(directory / "bin/echo", os.X_OK)


def test_a_zip_keeps_executable_files(unpacked):
    directory = unpacked(zip_of({"bin/echo": "x", "lib/": ""}), "https://example.org/A.ZIP?x=1")

    assert os.access(directory / "bin/echo", os.X_OK)


def test_another_file_is_the_program_itself(unpacked):
    directory = unpacked(b"\x7fELF", "https://example.org/echo-linux-x64")

    assert (directory / program_in(directory, "./bin/echo")).read_bytes() == b"\x7fELF"


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


@pytest.mark.parametrize(
    "data",
    [
        tar_of({"../evil": "x"}),
        tar_of({"a/../../evil": "x"}),
        tar(("link", symlink("/etc/passwd"))),
        tar(("link", symlink("../../etc/passwd"))),
        tar(("link", (tarfile.LNKTYPE, "../evil"))),
        tar(("device", (tarfile.CHRTYPE, ""))),
    ],
    ids=["parent", "inner parent", "absolute link", "link out", "hard link out", "device"],
)
def test_a_tar_that_leads_out_is_refused(unpacked, tmp_path, data):
    with pytest.raises(RegistryError, match="cannot be unpacked"):
        unpacked(data)

    assert not (tmp_path / "evil").exists()


def test_an_absolute_path_in_a_tar_stays_inside(unpacked, tmp_path):
    directory = unpacked(tar_of({f"{tmp_path}/evil": "x"}))

    assert not (tmp_path / "evil").exists()
    assert list(directory.rglob("evil"))


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil"])
def test_a_zip_that_leads_out_is_refused(unpacked, name):
    with pytest.raises(RegistryError, match="a path in it"):
        unpacked(zip_of({name: "x"}), "https://example.org/a.zip")


def test_a_link_in_a_zip_is_refused(unpacked):
    with pytest.raises(RegistryError, match="a link or a device"):
        unpacked(zip_of({"link": "/etc/passwd"}, mode=0o120777), "https://example.org/a.zip")


@pytest.mark.parametrize("url", ["https://example.org/a.tar.gz", "https://example.org/a.zip"])
def test_damaged_archives_are_refused(unpacked, url):
    with pytest.raises(RegistryError, match="cannot be unpacked"):
        unpacked(b"<html>not found</html>", url)


def test_an_archive_that_would_fill_the_disk_is_refused(unpacked, tmp_path):
    member = tarfile.TarInfo("a")
    member.size = 3 << 30

    with pytest.raises(RegistryError, match="unpacks to more than 2 GiB"):
        unpacked(gzip.compress(member.tobuf()))

    assert not any((tmp_path / "out").iterdir())


def test_a_zip_that_would_fill_the_disk_is_refused(unpacked, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("a", "x")
        bundle.filelist[0].file_size = 3 << 30

    with pytest.raises(RegistryError, match="unpacks to more than 2 GiB"):
        unpacked(buffer.getvalue(), "https://example.org/a.zip")

    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, b"Z"], ids=["directory", "unknown"])
def test_a_negative_size_in_a_tar_is_refused(unpacked, kind):
    header = bytearray(512)
    member = tarfile.TarInfo("d")
    member.type = kind
    header[:] = member.tobuf()
    header[124:136] = struct.pack(">Iq", 0xFFFFFFFF, -(1 << 50))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data = gzip.compress(bytes(header) + gzip.decompress(tar_of({"a": "x"})))

    # The second text is of `tarfile` itself, in newer Pythons.
    with pytest.raises(RegistryError, match=r"unknown size|invalid offset"):
        unpacked(data)


@pytest.mark.parametrize(
    "headers",
    [
        {"mtime": "1e400"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "zz"},
        {"GNU.sparse.map": "0,1", "GNU.sparse.size": "5"},
    ],
    ids=["time", "sparse", "sparse map"],
)
def test_headers_that_a_tar_cannot_have_are_refused(unpacked, headers):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("x")
        member.pax_headers = headers
        tar.addfile(member)

    with pytest.raises(RegistryError):
        unpacked(buffer.getvalue())


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_damaged_compression_is_refused(unpacked, kind):
    buffer = io.BytesIO()
    content = b"".join(b"%d" % number for number in range(9000))
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr("x", content)
    else:
        with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as tar:
            member = tarfile.TarInfo("x")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    data = bytearray(buffer.getvalue())
    data[60:1060] = b"\xff" * 1000
    suffix = "zip" if kind == "zip" else f"tar.{kind}"

    with pytest.raises(RegistryError, match="cannot be unpacked"):
        unpacked(bytes(data), f"https://example.org/a.{suffix}")


def test_installers_are_refused(unpacked):
    with pytest.raises(RegistryError, match="installers are not supported"):
        unpacked(b"", "https://example.org/a.deb")


@pytest.mark.parametrize("cmd", ["/bin/sh", "../sh", "a\\b", ""])
def test_a_program_outside_the_archive_is_refused(tmp_path, cmd):
    with pytest.raises(RegistryError, match="a path in it"):
        program_in(tmp_path, cmd)


def test_a_missing_program_is_named(tmp_path):
    with pytest.raises(RegistryError, match=r"no program \./echo"):
        program_in(tmp_path, "./echo")


def test_a_program_that_links_out_is_refused(tmp_path):
    (tmp_path / "echo").symlink_to("/bin/sh")

    with pytest.raises(RegistryError, match="a link out of its archive"):
        program_in(tmp_path, "./echo")


def test_links_inside_of_the_archive_are_kept(unpacked):
    directory = unpacked(
        tar(
            ("lib/real.so.1", b"x"),
            ("lib/real.so", symlink("real.so.1")),
            ("bin/run", symlink("../lib/real.so")),
            ("copy", (tarfile.LNKTYPE, "lib/real.so.1")),
        )
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
        unpacked(tar(*members, ("escape/evil", b"x")))

    assert os.listdir(tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["link/file", "link", "a/../link/file"])
def test_nothing_is_written_through_a_link(unpacked, name):
    with pytest.raises(RegistryError, match="through a link"):
        unpacked(tar(("directory/x", b""), ("link", symlink("directory")), (name, b"x")))


@pytest.mark.parametrize("target", ["x/..", "../directory/../../y", "..", "a/../../b"])
def test_a_link_that_may_lead_out_is_refused(unpacked, target):
    with pytest.raises(RegistryError):
        unpacked(tar(("directory/x", b""), ("link", symlink(target))))


@pytest.mark.parametrize("target", ["missing", "link", "directory", "link/x"])
def test_a_hard_link_leads_to_a_file_of_the_archive(unpacked, target):
    # The second text is of `realpath`, to which the data filter of newer Pythons leaves "link/x".
    with pytest.raises(RegistryError, match=r"no file of it|Not a directory"):
        unpacked(
            tar(
                ("directory/x", b""),
                ("link", symlink("directory/x")),
                ("copy", (tarfile.LNKTYPE, target)),
            )
        )
