"""Completion of slash commands; `test_command.py` has the line itself, on a terminal."""

from __future__ import annotations

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from conductor.cli.chat.prompt_line import CommandCompleter
from conductor.cli.prompt.view import View


def completed(text, commands=()):
    view = View()
    listed = [{"name": name, "description": about} for name, about in commands]
    view.set_commands({"availableCommands": listed})
    found = CommandCompleter(view).get_completions(Document(text), CompleteEvent())
    return [(each.text, each.start_position, each.display_meta_text) for each in found]


def test_commands_of_the_agent_and_exit_are_completed():
    commands = [("explain", "Explain it"), ("test", "Run tests")]

    assert completed("/ex", commands) == [("explain", -2, "Explain it"), ("exit", -2, "leave")]


def test_only_the_first_word_is_a_command():
    assert completed("explain", [("explain", "")]) == []
    assert completed("/test e", [("explain", "")]) == []


def test_hostile_commands_are_not_offered():
    assert completed("/", [("a\x1b[2J", ""), ("b c", ""), ("d", "\x1b[2Jx")]) == [
        ("d", -0, " [2Jx"),
        ("exit", -0, "leave"),
        ("file", -0, "send a file with the next prompt: /file PATH"),
        ("image", -0, "send an image with the next prompt: /image PATH"),
    ]


def test_an_own_command_is_offered_once():
    assert completed("/exit", [("exit", "of the agent")]) == [("exit", -4, "leave")]


def test_the_path_of_a_file_is_completed(tmp_path):
    (tmp_path / "notes.txt").touch()

    assert completed(f"/file {tmp_path}/no") == [("tes.txt", 0, "")]
    assert completed(f"/files {tmp_path}/no") == []
