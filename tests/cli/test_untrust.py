"""`acp-conductor untrust`, in this process; from the outside: `test_trust.py`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from conductor.chainfile.trust_store import TrustedFile, remember, trusted_file
from conductor.cli.trust import untrust_command as command

FILE = ".acp-conductor.yaml"


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / FILE
    path.write_text("version: 1\n")
    remember(TrustedFile(str(path), {}))
    return path


def untrust(path):
    return CliRunner().invoke(command, [str(path)])


def test_the_file_of_a_directory_is_forgotten_once(path):
    first, second = untrust(path.parent), untrust(path.parent)

    assert (first.exit_code, first.output) == (0, f"No longer trusted: {path}\n")
    assert trusted_file(str(path)) is None
    assert (second.exit_code, second.output) == (1, f"It was not trusted: {path}\n")


def test_a_file_that_was_deleted_is_forgotten_by_its_name(path):
    path.unlink()

    by_directory = untrust(path.parent)
    assert by_directory.exit_code == 2
    assert f"If it was deleted, name it: acp-conductor untrust PATH/{FILE}" in by_directory.output
    assert trusted_file(str(path)) is not None

    assert untrust(path).exit_code == 0
    assert trusted_file(str(path)) is None


def test_a_store_that_cannot_be_changed_is_an_error(path, tmp_path):
    (tmp_path / "state" / "acp-conductor" / "trust").rename(tmp_path / "elsewhere")
    (tmp_path / "state" / "acp-conductor" / "trust").write_text("")

    done = untrust(path)

    assert done.exit_code == 1
    assert "Not a directory" in done.output
