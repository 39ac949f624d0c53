from __future__ import annotations

import pytest

from conductor.cli.prompt.permissions import PermissionPrompt


class Shown:
    """A display that records what is noted."""

    def __init__(self):
        self.notes = []

    def permission(self, request, outcome):
        pass

    def note(self, text):
        self.notes.append(text)


def option(id, kind, name="Yes"):
    return {"optionId": id, "kind": kind, "name": name}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([option("1", "allow_always"), option("2", "allow_once"), option("3", "reject_once")], "2"),
        ([option("1", "allow_always"), option("3", "reject_once")], "1"),
        ([option("1", "allow_once"), option("2", "allow_once"), option("3", "reject_once")], None),
        ([option("1", "allow_once", "Use auto mode"), option("3", "reject_once")], None),
        ([option("1", "allow_once"), option("2", "allow_always")], None),
    ],
)
async def test_a_run_that_allows_answers_no_questions(options, chosen):
    display = Shown()
    prompt = PermissionPrompt("allow", None, display)

    outcome = (await prompt.decide({"options": options}))["outcome"]

    assert outcome.get("optionId") == chosen
    assert (outcome["outcome"] == "cancelled") == bool(display.notes) == (chosen is None)
