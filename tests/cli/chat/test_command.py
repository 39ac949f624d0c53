"""`acp-conductor chat` on a terminal."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from cli.conftest import AGENT, screen

pytestmark = pytest.mark.slow

HELLO = Path(__file__).parents[3] / "chains" / "hello.yaml"


def wait_for_line(shell, line):
    """Wait until a line is as given, and the next prompt can be typed."""
    shell.wait_until(lambda seen: line in screen(seen) and screen(seen)[-1] == ">")


@pytest.fixture
def chat(terminal, tmp_path):
    """Start `chat`; returns the terminal once the line for a prompt is shown."""

    def start(*arguments, **env):
        env = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": "state", **env}
        shell = terminal("chat", *arguments, env={**env, "XDG_STATE_HOME": str(tmp_path)})
        shell.wait_for("\x1b[?2004h")  # bracketed paste is on: the line is read
        return shell

    return start


@pytest.mark.fast
def test_turns_are_taken_until_the_user_leaves(chat, tmp_path):
    shell = chat(HELLO)

    shell.type("say one\r")
    wait_for_line(shell, "one")
    shell.type("say waiting\x1b\rwait\r")
    shell.wait_until(lambda seen: "waiting" in screen(seen))
    shell.type("\x03")
    wait_for_line(shell, "stopped: cancelled")
    shell.type("ask Edit\r")
    shell.wait_for("Which? [1-3] ")
    shell.type("1\n")
    wait_for_line(shell, "Edit: allow")
    shell.type("/exit\r")

    assert shell.exit_code() == 0
    history = tmp_path / "acp-conductor" / "chat-history"
    assert "+say one\n" in history.read_text()
    assert "+say waiting\n+wait\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_pasted_lines_are_one_prompt(chat):
    shell = chat(HELLO)

    shell.type("\x1b[200~say one\nsay two\x1b[201~\r")
    wait_for_line(shell, "onetwo")
    shell.type("\x04")

    assert shell.exit_code() == 0


def test_commands_of_the_agent_are_completed(chat):
    shell = chat("--", AGENT)

    shell.type("/ech")
    shell.wait_for("say the prompt, as content blocks in JSON")
    shell.type("\t\r")
    wait_for_line(shell, "You said: /echo")
    shell.type("\x04")

    assert shell.exit_code() == 0


def test_a_failed_turn_is_not_the_end(chat):
    shell = chat("--protocol", "2", HELLO)

    shell.type("stop refusal\r")
    wait_for_line(shell, "stopped: refusal")
    shell.type("say after\r")
    wait_for_line(shell, "after")
    shell.type("\x04")

    assert shell.exit_code() == 0


def test_ctrl_c_at_the_line_clears_it(chat):
    shell = chat(HELLO)

    shell.type("say not this\x03")
    shell.type("say this\r")
    wait_for_line(shell, "this")
    shell.type("\x04")

    assert shell.exit_code() == 0
    assert "not this" not in screen(shell.seen)


def test_termination_at_the_line_restores_the_terminal(chat):
    shell = chat(HELLO)

    os.kill(shell.pid, signal.SIGTERM)

    assert shell.exit_code() == 143
    assert "\x1b[?2004l" in shell.seen  # bracketed paste is off again


def test_chat_needs_a_terminal(run):
    result = run("chat", HELLO)

    assert result.returncode == 2
    assert "chat needs a terminal" in result.stderr
