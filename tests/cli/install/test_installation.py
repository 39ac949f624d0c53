"""`install` twice, other changes in between, and `uninstall`: what is in the file afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BEFORE = b'// mine\r\n{\r\n  "agent_servers": {\r\n    "g": {"command": "gemini"}\r\n  }\r\n}'


@pytest.fixture
def settings(home: Path) -> Path:
    path = home / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(BEFORE)
    return path


def test_installing_twice_is_installing_once(settings, call):
    call("install", "zed", "--chain", "review.yaml", "--write")
    once = settings.read_bytes()

    result = call("install", "zed", "--chain", "review.yaml", "--write")

    assert settings.read_bytes() == once
    assert f"{settings} has this entry already" in result.stdout


def test_installing_again_replaces_the_entry(settings, call):
    call("install", "zed", "--chain", "review.yaml", "--write")
    call("install", "zed", "--name", "review", "--write", "--no-path", "--", "gemini", "--acp")
    twice = settings.read_bytes()
    call("uninstall", "zed")
    restored = settings.read_bytes()
    call("install", "zed", "--name", "review", "--write", "--no-path", "--", "gemini", "--acp")

    assert restored == BEFORE
    assert settings.read_bytes() == twice


def test_wrapping_again_with_another_chain_wraps_once(settings, call):
    call("install", "zed", "--use", "usage", "--wrap", "g", "--write")
    call("install", "zed", "--use", "redact", "--wrap", "g", "--write")

    text = settings.read_text()
    assert '"args": ["wrap", "--use", "redact", "--", "gemini"]' in text
    assert "usage" not in text


def test_uninstall_of_one_agent_leaves_the_other_and_of_both_the_file_as_it_was(settings, call):
    settings.chmod(0o640)
    call("install", "zed", "--use", "usage", "--wrap", "g", "--write")
    call("install", "zed", "--chain", "review.yaml", "--write")

    call("uninstall", "zed", "--name", "g")
    text = settings.read_text()
    assert '"command": "gemini"' in text
    assert '"review"' in text

    call("uninstall", "zed", "--name", "review")
    assert settings.read_bytes() == BEFORE
    assert settings.stat().st_mode & 0o777 == 0o640


def test_uninstall_leaves_later_changes_of_a_person(settings, call):
    call("install", "zed", "--use", "usage", "--wrap", "g", "--write")
    call("install", "zed", "--chain", "review.yaml", "--write")
    settings.write_bytes(settings.read_bytes().replace(b"// mine", b"// still mine"))

    result = call("uninstall", "zed")

    assert settings.read_bytes() == BEFORE.replace(b"// mine", b"// still mine")
    assert "removed g, review; the rest of the file stays" in result.stdout


def test_objects_that_were_created_go_with_the_last_entry(settings, call):
    settings.write_text('{"theme": "One"}\n')
    call("install", "zed", "--chain", "review.yaml", "--write")
    settings.write_text(settings.read_text().replace("One", "Two"))

    call("uninstall", "zed")

    assert settings.read_text() == '{"theme": "Two"}\n'


def test_a_wrapped_agent_that_a_person_has_changed_is_left_with_an_error(settings, call):
    call("install", "zed", "--use", "usage", "--wrap", "g", "--write")
    text = settings.read_text().replace('"--use", "usage"', '"--use", "redact"')
    settings.write_text(text)

    result = call("uninstall", "zed", code=1)

    assert "agent_servers.g.args has been changed since" in result.stderr
    assert settings.read_text() == text


def test_a_lua_file_that_has_been_changed_is_deleted_and_kept_as_backup(home, call):
    call("install", "codecompanion", "--chain", "review.yaml", "--write")
    (path,) = (home / ".config/nvim/after/plugin").iterdir()
    path.write_text("-- mine now\n")

    done = call("uninstall", "codecompanion")

    assert done.stdout == f"{path}: deleted\n"
    backups = (home / ".local/state/acp-conductor/editors").glob(f"{path.name}.*")
    assert [backup.read_text() for backup in backups] == ["-- mine now\n"]
    assert not path.exists()


def test_a_linked_file_is_edited_where_it_is(settings, call, home):
    target = home / "dotfiles.json"
    settings.rename(target)
    settings.symlink_to(target)

    call("install", "zed", "--chain", "review.yaml", "--write")
    assert b'"review"' in target.read_bytes()
    call("uninstall", "zed")

    assert settings.is_symlink()
    assert target.read_bytes() == BEFORE


def test_backups_and_records_are_private(settings, call, home):
    result = call("install", "zed", "--chain", "review.yaml", "--write")

    directory = home / ".local" / "state" / "acp-conductor" / "editors"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    (backup,) = directory.glob("settings.json.*")
    assert backup.read_bytes() == BEFORE
    assert f"backup: {backup}" in result.stdout


def test_nothing_of_the_environment_but_path_is_written(settings, call, home, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")

    call("install", "zed", "--chain", "review.yaml", "--write")

    written = [path.read_text() for path in home.rglob("*") if path.is_file()]
    assert not any("sk-secret" in text for text in written)


def test_a_record_that_is_no_json_is_named(settings, call, home):
    directory = home / ".local" / "state" / "acp-conductor" / "editors"
    directory.mkdir(parents=True)
    (directory / "editors.json").write_text("{")

    result = call("uninstall", "zed", code=1)

    assert f"{directory}/editors.json cannot be read" in result.stderr


def test_a_read_only_file_is_not_replaced(settings, call, home):
    target = home / "generated.json"
    settings.rename(target)
    target.chmod(0o444)
    settings.symlink_to(target)

    result = call("install", "zed", "--chain", "review.yaml", "--write", code=1)

    assert (
        f"{settings} (a link to {target}) is read-only: change what generates it" in result.stderr
    )
    assert target.read_bytes() == BEFORE


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("latin", "DIR/latin:2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (".", "DIR cannot be read: it is a directory, not a regular file"),
        ("pipe", "DIR/pipe cannot be read: it is a named pipe, not a regular file"),
        ("latin/x", "DIR/latin/x cannot be read: Not a directory"),
    ],
)
def test_what_is_no_file_of_text_is_refused(call, home, name, problem):
    (home / "latin").write_bytes(b'{\n"a": "\xe9"}')
    os.mkfifo(home / "pipe")

    result = call("install", "zed", "--chain", "review.yaml", "--file", name, "--write", code=1)

    assert result.stderr.replace(str(home), "DIR") == f"{problem}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zed", "--name", "x"], "`install --write` has written no agent 'x' for Zed"),
        (["zed", "--file", "x.json"], "has written nothing for Zed to x.json"),
        (["toad"], "`install --write` has written nothing for Toad"),
    ],
)
def test_there_is_nothing_to_uninstall(call, words, message):
    assert message in call("uninstall", *words, code=1).stderr


def test_only_the_file_that_is_named_is_changed(call, home):
    for name in ("made/a.json", "b.json"):
        call("install", "zed", "--chain", "review.yaml", "--file", name, "--write")

    call("uninstall", "zed", "--file", "made/a.json")

    assert not (home / "made" / "a.json").exists()
    assert '"review"' in (home / "b.json").read_text()
