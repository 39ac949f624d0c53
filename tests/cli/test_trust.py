"""`acp-conductor trust` and `untrust`."""

from __future__ import annotations

import os

import pytest

from cli.conftest import PATIENCE

pytestmark = pytest.mark.slow

FILE = ".acp-conductor.yaml"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in a home directory, with its file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "mark.py").write_text("class Mark: pass\n")
    (directory / FILE).write_text(
        "version: 1\nproxies:\n  - use: ./mark.py:Mark\n  - run: [tool, --token, abc]\n"
        "    env: {LD_PRELOAD: x.so}\n"
    )
    return directory


def test_a_file_is_shown_trusted_changed_and_forgotten(run, project):
    path = project / FILE

    shown = run("trust", project, "--yes")
    assert shown.returncode == 0
    for text in ("LD_PRELOAD: x.so", f"with {project}/mark.py", "  tool: tool --token abc"):
        assert text in shown.stdout
    assert run("trust", "--list").stdout == f"{path}\n"

    with open(project / "mark.py", "a") as file:
        file.write("# changed\n")
    assert run("trust", "--list").stdout == f"{path}  (changed since: its sessions are refused)\n"

    assert run("untrust", cwd=project).stdout == f"No longer trusted: {path}\n"
    nothing = run("trust", "--list")
    assert (nothing.stdout, nothing.stderr) == ("", "You trust no project's file.\n")
    assert run("untrust", path).returncode == 1


@pytest.mark.fast
def test_without_a_terminal_nobody_can_say_yes(run, project):
    done = run("trust", cwd=project, input="y\n")

    assert done.returncode == 1
    assert "there is no terminal to ask" in done.stderr
    assert run("trust", "--list").stdout == ""


def test_the_answer_on_a_terminal_decides(project):
    import pty
    import subprocess
    import sys

    for answer, trusted in ((b"n\n", ""), (b"y\n", f"{project / FILE}\n")):
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "conductor", "trust", str(project)]
        with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            os.write(master, answer)
            process.wait(PATIENCE)
        os.close(master)
        listed = subprocess.run(
            [*command[:-1], "--list"], capture_output=True, text=True, check=True
        )
        assert listed.stdout == trusted


def test_what_cannot_be_trusted_is_explained(run, project, tmp_path):
    path = project / FILE
    (tmp_path / "other").mkdir()
    assert "there is no .acp-conductor.yaml" in run("trust", tmp_path / "other").stderr
    assert "is no directory" in run("trust", project / "mark.py").stderr

    path.chmod(0o666)
    assert "every user of this machine can change it" in run("trust", path, "--yes").stderr
    path.chmod(0o600)

    path.write_text("version: 1\nproxies: [{rn: x}]\n")
    done = run("trust", path, "--yes")
    assert (done.returncode, "unknown key `rn`" in done.stderr) == (2, True)


def test_what_would_not_start_is_warned_of(run, project):
    items = ("{use: cntext}", "{registry: no-agent}", "{use: context, with: {text: hi}}")
    (project / FILE).write_text(f"version: 1\nproxies: [{', '.join(items)}, {{run: no-such}}]\n")

    done = run("trust", project, "--yes")

    assert done.returncode == 0
    assert "no installed package has a component called 'cntext'" in done.stderr
    assert "has no `no-agent`" in done.stderr
    assert "command not found: no-such" in done.stderr
    assert done.stderr.count(f"{project / FILE}:") == 3


def test_a_file_in_the_home_directory_is_no_project(run, project, tmp_path):
    (tmp_path / FILE).write_text("version: 1\n")

    for path in (tmp_path, tmp_path / FILE):
        done = run("trust", path, "--yes")
        assert done.returncode == 2
        assert f"{tmp_path} is no project" in done.stderr
        assert "acp-conductor/chain.yaml" in done.stderr


@pytest.mark.fast
def test_show_adds_the_project_and_says_what_is_not_used(run, project, chain_file):
    chain = chain_file("proxies: [{run: a, when: {env: NEVER}}]\nagent: {run: my-agent}\n")

    refused = run("show", chain, cwd=project).stdout
    own = "is not trusted yet; to see what it runs: acp-conductor trust"
    assert f"project: {project / FILE} {own}\n" in refused
    elsewhere = run("show", chain, "--cwd", project).stdout
    assert f"project: {project / FILE} {own} {project}\n" in elsewhere
    assert "Mark" not in refused
    assert "    left out here, without env: NEVER\n" in refused
    assert "    when: env: NEVER\n" in refused

    run("trust", project, "--yes")
    (project / FILE).chmod(0o666)
    unsafe = run("show", chain, cwd=project)
    assert unsafe.returncode == 2
    assert "error: the file is not used: every user of this machine can change it" in unsafe.stderr
    (project / FILE).chmod(0o600)
    lines = run("show", chain, "--cwd", project).stdout.splitlines()
    assert [line for line in lines if line.startswith("  ") and line[2] != " "][:4] == [
        *("  proxy 1: a", "  proxy 2: Mark", "  proxy 3: tool", "  agent: my-agent"),
    ]
    assert f"    at: {project / FILE}:3:5" in lines
    assert "Mark" not in run("show", chain, "--cwd", project, "--no-project").stdout


def test_a_file_that_was_deleted_is_forgotten_by_its_name(run, project):
    path = project / FILE
    run("trust", project, "--yes")
    path.unlink()

    by_directory = run("untrust", project)
    assert by_directory.returncode == 2
    assert f"If it was deleted, name it: acp-conductor untrust PATH/{FILE}" in by_directory.stderr

    assert run("untrust", path).returncode == 0
    assert run("trust", "--list").stdout == ""
