"""`env`, `inherit_env`, `cwd` and `stderr` are each component's own."""

import pytest
from support.peers.process import probe, words

NOISY = 'head -c 1536000 /dev/zero >&2; exec "$0" "$@"'


@pytest.mark.fast
def test_env_adds_to_the_conductors_environment(start_file, monkeypatch):
    monkeypatch.setenv("FROM_US", "ours")
    monkeypatch.setenv("CHANGED", "before")
    monkeypatch.setenv("REMOVED", "before")
    env = {"CHANGED": "after", "ADDED": "new", "REMOVED": None}
    editor = start_file({"run": probe(), "env": env})
    editor.open()

    assert editor.ask("env FROM_US") == "ours"
    assert editor.ask("env CHANGED") == "after"
    assert editor.ask("env ADDED") == "new"
    assert editor.ask("env REMOVED") == "unset"
    assert editor.leave() == 0


@pytest.mark.fast
def test_stderr_is_kept_in_a_private_file_and_quoted_in_errors(start_file, tmp_path):
    path = tmp_path / "agent.log"
    path.write_text("of an earlier run\n")
    editor = start_file({"run": probe(), "stderr": "agent.log", "on_failure": "end_chain"})
    editor.open()
    assert editor.ask("errors first words\\n") == "ok"

    error = editor.answer(editor.prompt("last last words\\n"))["error"]

    assert error["data"]["stderr"][-1] == "last words"
    assert editor.wait() == 1
    assert path.read_text() == "of an earlier run\nfirst words\nlast words\n"


def test_the_file_of_stderr_is_rotated_and_private(start_file, tmp_path):
    path = tmp_path / "agent.log"
    editor = start_file({"run": ["sh", "-c", NOISY, *probe()], "stderr": "agent.log"})
    editor.open()

    assert editor.ask("echo x") == "x"
    assert editor.leave() == 0
    old, new = tmp_path / "agent.log.1", path
    assert 1 << 20 <= old.stat().st_size < 1200 * 1024
    assert old.stat().st_size + new.stat().st_size == 1500 * 1024
    assert {each.stat().st_mode & 0o777 for each in (old, new)} == {0o600}


def test_a_file_of_stderr_that_cannot_be_written_is_told_in_the_log(start_file, tmp_path):
    (tmp_path / "agent.log").symlink_to(tmp_path / "other")
    editor = start_file({"run": probe(), "stderr": "agent.log"})
    editor.open()
    assert editor.ask("errors words\\n") == "ok"

    editor.wait_log("stderr file not written")
    assert editor.ask("echo x") == "x"
    assert editor.leave() == 0
    assert not (tmp_path / "other").exists()


def test_a_component_with_inherit_env_false_has_only_its_env(start_file):
    editor = start_file({"run": probe(), "env": {"ONLY": "this"}, "inherit_env": False})
    editor.open()

    assert editor.ask("env ONLY") == "this"
    assert editor.ask("env PATH") == "unset"
    assert editor.ask("env ACP_CONDUCTOR_TREE") != "unset"  # marks its descendants
    assert int(editor.ask("environ")) <= 3  # Python may add LC_CTYPE
    assert editor.leave() == 0


def test_assignments_before_a_command_set_its_environment(start):
    (command,) = words(probe())
    editor = start("agent", f"ADDED='a b' EMPTY= {command}")
    editor.open()

    assert editor.ask("env ADDED") == "a b"
    assert editor.ask("env EMPTY") == ""
    assert editor.leave() == 0


@pytest.mark.parametrize("written", ["sub", "{absolute}/sub"])
def test_cwd_sets_the_working_directory(start_file, tmp_path, written):
    (tmp_path / "sub").mkdir()
    cwd = written.format(absolute=tmp_path)
    editor = start_file({"run": probe(), "cwd": cwd})
    editor.open()

    assert editor.ask("cwd") == str(tmp_path / "sub")
    assert editor.leave() == 0
