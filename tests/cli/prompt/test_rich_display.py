"""`prompt` on a terminal: what stays on the screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.conftest import AGENT, STUBBORN, screen

pytestmark = pytest.mark.slow

HELLO = Path(__file__).parents[3] / "chains" / "hello.yaml"


@pytest.mark.fast
def test_the_answer_is_markdown_and_tool_calls_have_their_time(terminal):
    shell = terminal("prompt", HELLO, "say **bold** word\ntool Look around", env={"TERM": "xterm"})

    assert shell.exit_code() == 0
    text, tool, output = screen(shell.seen)
    assert text == "bold word"
    assert re.fullmatch(r"✓ Look around  \d\.\ds", tool)
    assert output == "  done"
    assert "\x1b[1mbold" in shell.seen


def test_questions_stay_until_they_are_answered(terminal):
    shell = terminal("prompt", HELLO, "ask Edit", env={"TERM": "xterm"})

    shell.wait_for("Which? [1-3] ")
    shell.type("3\n")

    assert shell.exit_code() == 0
    lines = screen(shell.seen)
    assert lines[:6] == [
        "? Edit",
        "  1  Allow",
        "  2  Always allow",
        "  3  Reject",
        "Which? [1-3] 3",
        "permission: Edit: Reject",
    ]
    assert re.fullmatch(r"✗ Edit \(edit\)  \d\.\ds", lines[6])
    assert lines[7] == "Edit: reject"


def test_a_plan_that_is_not_done_is_shown_at_the_end(terminal):
    shell = terminal("prompt", HELLO, "plan a; b\nwait", env={"TERM": "xterm"})

    shell.wait_for("[x] b")
    shell.type("\x03")

    assert shell.exit_code() == 130
    assert screen(shell.seen)[-1] == "stopped: cancelled"


@pytest.mark.fast
def test_escapes_of_an_agent_do_not_reach_the_terminal(terminal):
    text = "say \x1b[2Jgone \x1b]0;title\x07\ntool \x1b[9Aup"

    shell = terminal("prompt", HELLO, text, env={"TERM": "xterm"})

    assert shell.exit_code() == 0
    assert "[2Jgone" in shell.seen
    for escape in ("\x1b[2J", "\x1b]0", "\x07", "\x1b[9A"):
        assert escape not in shell.seen


def test_no_color_has_no_colours(terminal):
    env = {"TERM": "xterm-256color", "NO_COLOR": "1"}

    shell = terminal("prompt", HELLO, "say `code`\ntool x", env=env)

    assert shell.exit_code() == 0
    assert not re.search(r"\x1b\[[\d;]*\b(3|4|9)\d\b[\d;]*m", shell.seen)


def test_another_encoding_than_utf_8_works(terminal):
    env = {"TERM": "xterm", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    shell = terminal("prompt", HELLO, "say - item\ntool x", env=env)

    assert shell.exit_code() == 0
    assert shell.seen.isascii()
    assert "item" in shell.seen


def test_the_log_is_shown_above_what_is_redrawn(terminal):
    text = "tool x\nlog a line of the agent\nsay after"

    shell = terminal("--log", "info", "prompt", "--", AGENT, text, env={"TERM": "xterm"})

    assert shell.exit_code() == 0
    lines = screen(shell.seen)
    assert any(line.startswith("20") and "[info" in line for line in lines)
    assert not any("Ctrl-C cancels" in line for line in lines)


def test_what_a_second_ctrl_c_does_is_shown_while_the_agent_does_not_react(terminal):
    shell = terminal("prompt", "--", STUBBORN, "wait", env={"TERM": "xterm"})

    shell.wait_for("Ctrl-C cancels")
    shell.type("\x03")
    shell.wait_for("cancelling, Ctrl-C kills the chain")
    shell.type("\x03")

    assert shell.exit_code() == 130
