from __future__ import annotations

import json

import pytest
from support.raw_json import dumps

from conductor.proxy.slash_commands import AnnouncedCommands, SlashCommand, SlashCommands

COMMANDS = SlashCommands([SlashCommand("notes", "Show the notes")])
ANNOUNCED = AnnouncedCommands()


def prompt(text):
    return dumps({"sessionId": "s", "prompt": [{"type": "text", "text": text}]})


@pytest.mark.parametrize(
    "raw",
    [
        prompt("/notes"),
        prompt("/notes all of them"),
        prompt("\n\t  /notes"),
        prompt("\x0b\u2003/notes"),
        '{"prompt":[{"type":"text","text":"\u2003/notes"}]}'.encode(),
        b'{"prompt":[{"type":"text","text":"\\/notes"}]}',
        b'{"prompt":[{"type":"text","text":"\\n\\u002fnotes"}]}',
        b'{"prompt":[{"type":"text","text":"/\\u006eotes"}]}',
    ],
)
def test_no_spelling_of_a_command_is_missed(raw):
    assert COMMANDS.may_call(raw, ANNOUNCED)
    assert COMMANDS.called(json.loads(raw)["prompt"], ANNOUNCED) is not None


@pytest.mark.parametrize("text", ["see docs/notes", 'the file "notes"', "/other", "\\/notes"])
def test_prompts_that_call_no_command_are_not_decoded(text):
    assert not COMMANDS.may_call(prompt(text), ANNOUNCED)
    assert not COMMANDS.may_call(None, ANNOUNCED)


def test_a_quoted_command_in_a_text_is_decoded_but_not_called():
    raw = prompt('type "/notes" to see them')
    assert COMMANDS.may_call(raw, ANNOUNCED)
    assert COMMANDS.called(json.loads(raw)["prompt"], ANNOUNCED) is None
