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


def unwrapped(seen):
    """The screen as one line without spaces, since long lines are wrapped."""
    return "".join(screen(seen)).replace(" ", "")


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


LATER = """
import attrs, os, trio
from conductor.proxy import Forward, Prompt, Proxy, Session, on_prompt, text

@attrs.define
class Later(Proxy):
    gate: str

    @on_prompt
    async def plan_update(self, session: Session, prompt: Prompt, forward: Forward) -> object:
        self.start_soon(self.tell, session.id)
        return await forward(prompt)

    async def tell(self, session: str) -> None:
        for number in (1, 2):
            await trio.to_thread.run_sync(lambda: open(self.gate).read(), abandon_on_cancel=True)
            chunk = {"type": "text", "text": f"message **{number}** in the meantime"}
            update = {"sessionUpdate": "agent_message_chunk", "content": chunk}
            await self.client.notify("session/update", {"sessionId": session, "update": update})
"""


@pytest.mark.fast
def test_updates_are_shown_above_the_line_while_the_user_types(chat, tmp_path):
    (tmp_path / "later.py").write_text(LATER)
    os.mkfifo(tmp_path / "gate")
    proxy = f"{{use: ./later.py:Later, with: {{gate: {tmp_path}/gate}}}}"
    file = tmp_path / "later.yaml"
    file.write_text(f"version: 1\nproxies: [{proxy}]\nagent: {{use: test-agent}}\n")
    shell = chat(file)
    shell.type("say one\r")
    wait_for_line(shell, "one")

    shell.type("say ha")
    shell.wait_until(lambda seen: screen(seen)[-1] == "> say ha")
    for number in (1, 2):
        (tmp_path / "gate").write_text("")
        lines = [f"message {number} in the meantime", "> say ha"]
        shell.wait_until(lambda seen, lines=lines: screen(seen)[-2:] == lines)
    shell.type("lf\r")
    wait_for_line(shell, "half")
    shell.type("\x04")

    assert shell.exit_code() == 0
    lines = screen(shell.seen)
    first = lines.index("message 1 in the meantime")
    assert lines[first : first + 4] == [
        "message 1 in the meantime",
        "message 2 in the meantime",
        "> say half",
        "half",
    ]


def test_files_and_images_go_with_the_next_prompt(chat, tmp_path):
    (tmp_path / "my notes.txt").write_text("remember")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    shell = chat(HELLO)

    shell.type("/file missing\r")
    wait_for_line(shell, "error: missing does not exist")
    shell.type("/file 'my notes.txt'\r")
    wait_for_line(shell, "with the next prompt: my notes.txt (8 bytes, text/plain)")
    shell.type("/image dot.png\r")
    wait_for_line(shell, "with the next prompt: dot.png (8 bytes, image/png)")
    shell.type("echo\r")
    shell.wait_until(lambda seen: '"type":"image"' in unwrapped(seen))
    shell.type("say none\r")
    wait_for_line(shell, "none")
    shell.type("\x04")

    assert shell.exit_code() == 0
    assert '"type":"resource"' in unwrapped(shell.seen)
    assert '"text":"remember"' in unwrapped(shell.seen)
