"""Entries in JSON settings, of the forms that editors have."""

from __future__ import annotations

import json

import pytest

from conductor.cli.install.formats import FormatError, Launch
from conductor.cli.install.json_settings import JsonSettings

WRAP = Launch("g", ("/bin/acp-conductor",), ("wrap", "--use", "usage", "--"), wrapped="g")
RUN = Launch("r", ("/bin/acp-conductor",), ("run", "/a b.yaml"), {"PATH": "/bin"})


@pytest.mark.parametrize(
    ("is_line", "entry", "wrapped"),
    [
        (
            False,
            {"command": "gemini", "env": {"A": "b"}},
            {
                "command": "/bin/acp-conductor",
                "env": {"A": "b"},
                "args": ["wrap", "--use", "usage", "--", "gemini"],
            },
        ),
        (
            True,
            {"command": "gemini --acp", "args": ["--debug"]},
            {"command": "/bin/acp-conductor wrap --use usage -- gemini --acp", "args": ["--debug"]},
        ),
        (
            True,
            {"argv": ["gemini", "a b"]},
            {"argv": ["/bin/acp-conductor", "wrap", "--use", "usage", "--", "gemini", "a b"]},
        ),
    ],
)
def test_wrapping_and_back(is_line, entry, wrapped):
    format = JsonSettings(("agents",), is_line=is_line)
    before = json.dumps({"agents": {"g": entry}}, indent=4)

    text, edits = format.install(before, WRAP)

    assert json.loads(text) == {"agents": {"g": wrapped}}
    assert format.uninstall(text, "g", edits) == before


def test_a_line_is_quoted_and_has_no_environment():
    text, _ = JsonSettings(("agents",), is_line=True).install("", RUN)

    assert json.loads(text) == {"agents": {"r": {"command": "/bin/acp-conductor run '/a b.yaml'"}}}


@pytest.mark.parametrize(
    ("text", "message", "index"),
    [
        ("[]", "expected an object", 0),
        ('{"agents": []}', "expected an object", 11),
        ('{"agents": {"r": 1}}', "there is an entry 'r' already", 17),
    ],
)
def test_settings_that_cannot_take_the_entry(text, message, index):
    with pytest.raises(FormatError) as caught:
        JsonSettings(("agents",)).install(text, RUN)

    assert (str(caught.value), caught.value.index) == (message, index)
