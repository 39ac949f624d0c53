"""The command line of `ssh`, and what the shell there makes of it."""

from __future__ import annotations

import subprocess

import pytest

from conductor.remote.ssh import ssh_argv

NASTY = ["two words", "$HOME", "it's", "`id`", "a;b", "", "\\", "*", "-x"]


def remote_command(*command: str, **more: object) -> str:
    return ssh_argv("me@host", command, ping_timeout=30.0, **more)[-1]  # type: ignore[arg-type]


def test_ssh_runs_in_batch_mode_with_keep_alive():
    assert ssh_argv("me@host", ["agent", "--acp"], ping_timeout=30.0) == [
        *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10"),
        *("-o", "ServerAliveCountMax=2", "-o", "ConnectTimeout=30"),
        *("--", "me@host", "exec agent --acp"),
    ]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_every_word_arrives_as_it_is_through_the_shell_there(shell):
    command = remote_command("printf", "%s\\n", *NASTY)

    output = subprocess.run([shell, "-c", command], capture_output=True, text=True, check=True)

    assert output.stdout == "".join(f"{word}\n" for word in NASTY)


def test_the_program_runs_in_its_directory(tmp_path):
    directory = tmp_path / "it's here"
    directory.mkdir()

    output = subprocess.check_output(["sh", "-c", remote_command("pwd", cwd=str(directory))])

    assert output.decode() == f"{directory}\n"


def test_values_of_variables_are_not_in_the_command_and_a_missing_one_is_named():
    command = remote_command("echo", "started", names=["TOKEN_ONE", "TOKEN_TWO"])
    environment = {"PATH": "/usr/bin:/bin", "TOKEN_ONE": "x"}

    result = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False
    )

    assert (result.returncode, result.stdout) == (78, "")
    assert "does not take the variable TOKEN_TWO (AcceptEnv" in result.stderr


def test_the_names_of_variables_are_sent_by_ssh_itself():
    argv = ssh_argv("me@host", ["agent"], names=["TOKEN"], ping_timeout=30.0)

    assert "SendEnv=TOKEN" in argv
