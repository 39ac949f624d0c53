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
    ]
