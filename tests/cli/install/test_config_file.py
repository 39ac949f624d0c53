"""Configuration files of other programs: replaced atomically, links and permission bits kept."""

from __future__ import annotations

import os

import pytest

from conductor.cli.install.config_file import (
    ConfigFileError,
    delete_config,
    read_config,
    write_config,
)


def test_a_missing_file_is_empty_and_is_created_with_its_directories(tmp_path):
    path = tmp_path / "a" / "b" / "settings.json"
    file = read_config(path)

    write_config(file, b"{}")

    assert (file.data, file.text) == (None, "")
    assert path.read_bytes() == b"{}"
    assert os.listdir(path.parent) == ["settings.json"]


def test_permission_bits_and_the_link_stay(tmp_path):
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles" / "settings.json"
    target.write_text("{}")
    target.chmod(0o640)
    link = tmp_path / "settings.json"
    link.symlink_to("dotfiles/settings.json")

    write_config(read_config(link), b"[]")

    assert link.is_symlink()
    assert target.read_bytes() == b"[]"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_read_only_file_is_not_replaced(tmp_path):
    target = tmp_path / "generated.json"
    target.write_text("{}")
    target.chmod(0o444)
    link = tmp_path / "settings.json"
    link.symlink_to(target)

    with pytest.raises(ConfigFileError) as caught:
        write_config(read_config(link), b"[]")

    assert f"{link} (a link to {target}) is read-only: change what generates it" in str(
        caught.value
    )
    assert target.read_text() == "{}"


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("{}")
    file = read_config(path)
    path.write_text("[]")

    for change in (lambda: write_config(file, b"x"), lambda: delete_config(file)):
        with pytest.raises(ConfigFileError, match="has changed meanwhile; try again"):
            change()
    assert path.read_text() == "[]"


def test_what_is_no_file_of_text_is_refused_with_its_line(tmp_path):
    (tmp_path / "latin").write_bytes(b'{\n"a": "\xe9"}')
    os.mkfifo(tmp_path / "pipe")
    errors = []
    for name in ("latin", ".", "pipe", "settings.json/x"):
        (tmp_path / "settings.json").write_text("{}")
        with pytest.raises(ConfigFileError) as caught:
            _ = read_config(tmp_path / name).text
        errors.append(str(caught.value).replace(str(tmp_path), "DIR"))

    assert errors == [
        "DIR/latin:2: byte 0xe9 is not UTF-8; save the file as UTF-8",
        "DIR cannot be read: it is a directory, not a regular file",
        "DIR/pipe cannot be read: it is a named pipe, not a regular file",
        "DIR/settings.json/x cannot be read: Not a directory",
    ]


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigFileError, match="cannot be"):
        write_config(read_config(tmp_path / "file" / "settings.json"), b"{}")
