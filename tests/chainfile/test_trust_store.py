"""What this user trusts is kept in a private directory."""

from __future__ import annotations

from conductor.chainfile.trust_store import (
    TrustedFile,
    forget,
    remember,
    trusted_file,
    trusted_files,
)


def test_an_entry_is_remembered_and_forgotten(home):
    entry = TrustedFile("/project/.acp-conductor.yaml", {"/project/.acp-conductor.yaml": "abc"})

    assert trusted_file(entry.path) is None
    remember(entry)
    assert trusted_file(entry.path) == entry
    assert trusted_files() == [entry]
    assert forget(entry.path)
    assert trusted_file(entry.path) is None
    assert not forget(entry.path)


def test_only_this_user_can_read_entries(home):
    remember(TrustedFile("/a", {}))
    directory = home / "state" / "acp-conductor" / "trust"

    assert directory.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in directory.iterdir()] == [0o600]


def test_no_content_fits_an_entry_that_others_can_write(home):
    remember(TrustedFile("/a", {}))
    (file,) = (home / "state" / "acp-conductor" / "trust").iterdir()
    file.chmod(0o666)

    assert trusted_file("/a") == TrustedFile("/a", {})


def test_no_content_fits_a_damaged_entry(home):
    remember(TrustedFile("/a", {}))
    (file,) = (home / "state" / "acp-conductor" / "trust").iterdir()
    file.write_text("{")

    assert trusted_file("/a") == TrustedFile("/a", {})
    assert trusted_files() == []


def test_an_entry_holds_for_its_path_only(home):
    remember(TrustedFile("/a", {}))
    (file,) = (home / "state" / "acp-conductor" / "trust").iterdir()
    remember(TrustedFile("/b", {}))
    (other,) = {*file.parent.iterdir()} - {file}
    file.replace(other)

    assert trusted_file("/b") == TrustedFile("/b", {})
