"""Both displays with messages of a hostile agent: nothing fails, escapes or is hidden."""

from __future__ import annotations

import os
import pty
import queue
import threading
from contextlib import suppress

import pytest

from conductor.cli.prompt.display import JsonDisplay, Stdout, TextDisplay
from conductor.cli.prompt.rich_display import RichDisplay
from conductor.schema.convert import decode

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\ud800\u2066\x00\r\x08"
MARK = b"(end of what was written)"
VALUES = [
    *(None, 5, [], {}, [[]], [5], 10**30, 1e400, True, EVIL, {"a": []}),
    [{"status": [], EVIL: EVIL}],
    decode(b'{"n": 1e999, "s": "\\ud800", "i": 123456789012345678901234567890}'),
    [{"type": "content", "content": {"type": "text", "text": EVIL}}],
    [{"type": "diff", "path": EVIL, "newText": EVIL}],
    [{"type": "diff", "changes": [{"operation": [], "path": {}}]}],
    {"type": "text", "text": EVIL},
    {"entries": [{"status": {}, "content": EVIL}]},
]
KINDS = (
    *("agent_message_chunk", "agent_thought_chunk", "user_message_chunk", "agent_message"),
    *("tool_call", "tool_call_update", "tool_call_content_chunk", "plan", "plan_update", "notice"),
    *("current_mode_update", "available_commands_update", "state_update", None, []),
)
MEMBERS = (
    *("content", "messageId", "toolCallId", "title", "kind", "status", "entries", "plan"),
    *("currentModeId", "severity", "description", "availableCommands"),
)


@pytest.fixture
def terminal(monkeypatch):
    """A standard output on a terminal, and a function that returns what was written to it since."""
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    received = queue.SimpleQueue()
    reader = threading.Thread(target=_receive, args=(leader, received))
    reader.start()

    def read():
        os.write(follower, MARK)
        seen = b""
        while not seen.endswith(MARK):
            seen += received.get(timeout=10)
        return seen.removesuffix(MARK)

    yield Stdout(follower), read
    os.close(follower)
    reader.join()
    os.close(leader)


def _receive(leader, received):
    """A terminal delivers what is written to it some time later."""
    with suppress(OSError):
        while data := os.read(leader, 65536):
            received.put(data)


DISPLAYS = pytest.mark.parametrize("kind", [TextDisplay, RichDisplay, JsonDisplay])


@DISPLAYS
@pytest.mark.parametrize("update", KINDS, ids=str)
def test_no_update_of_an_agent_fails_or_controls_the_terminal(terminal, capfd, kind, update):
    stdout, read = terminal
    display = kind(stdout)
    display.begin_turn()
    seen = b""
    for member in MEMBERS:
        for value in VALUES:
            display.update("s", {"sessionUpdate": update, "toolCallId": "t", member: value})
            seen += read()
    display.ended({"stopReason": VALUES[-1]})
    display.end()
    seen += read() + capfd.readouterr().err.encode(errors="replace")

    for control in (b"\x1b]", b"\x1b[2J", b"\x07", b"\xc2\x9b", b"\xe2\x80\xae", b"\x08"):
        assert control not in seen


@DISPLAYS
@pytest.mark.parametrize("member", ["options", "toolCall", "subject", "title"])
def test_no_question_of_an_agent_fails(terminal, capfd, kind, member):
    stdout, read = terminal
    for value in (*VALUES, *({"toolCallId": "t", "rawInput": each} for each in VALUES)):
        display = kind(stdout)
        request = {"toolCall": {"toolCallId": "t"}, member: value}
        display.ask(request, [{"optionId": "a", "name": EVIL}])
        display.permission(request, {"outcome": "selected", "optionId": "a"})
        display.end()
        assert b"\x1b]" not in read()
    assert "\x1b]" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", [TextDisplay, RichDisplay])
def test_a_question_shows_the_whole_command_also_beside_a_diff(terminal, capfd, kind):
    stdout, read = terminal
    command = "git status" + " " * 2000 + "; rm -rf ~"
    diff = {"type": "diff", "path": "/a", "newText": "harmless"}
    call = {"toolCallId": "t", "rawInput": {"command": command}, "content": [diff]}
    kind(stdout).ask({"toolCall": call}, [])

    assert "rm -rf ~" in read().decode() + capfd.readouterr().err


@pytest.mark.parametrize("kind", [TextDisplay, RichDisplay])
def test_a_question_names_the_files_that_nothing_else_in_it_names(terminal, capfd, kind):
    stdout, read = terminal
    locations = [{"path": path} for path in ("/in/title", "/in/diff", "/else/where")]
    diff = {"type": "diff", "path": "/in/diff", "newText": "x"}
    call = {"toolCallId": "t", "title": "Edit /in/title", "content": [diff]}
    kind(stdout).ask({"toolCall": {**call, "locations": locations}}, [])

    shown = read().decode() + capfd.readouterr().err
    assert [shown.count(each["path"]) for each in locations] == [1, 1, 1]
