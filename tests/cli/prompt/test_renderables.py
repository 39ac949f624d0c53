"""What is shown of blocks, without a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conductor.cli.prompt import renderables
from conductor.cli.prompt.content import FileDiff
from conductor.cli.prompt.view import Answer, Note, PastPrompt, ShownCall, ShownPlanEntry, Thought

HOSTILE = "\x1b[2J\x9b31m\x1b]0;title\x07&#27;[1m&#x9b;31m\u202e\r\b"


def shown(renderable, *, width=60, colour=False):
    file = io.StringIO()
    Console(
        file=file,
        width=width,
        theme=renderables.THEME,
        force_terminal=colour,
        color_system="standard" if colour else None,
    ).print(renderable)
    return file.getvalue()


def text_of(block, **options):
    lines = shown(renderables.block(block, 2.0), **options).splitlines()
    return [line.rstrip() for line in lines]


def test_markdown_has_no_more_than_one_blank_line_after_it():
    assert text_of(Answer("# Title\n\n- a\n- b\n\n")) == ["Title", "", " • a", " • b", ""]


def test_the_address_of_a_link_is_shown():
    assert text_of(Answer("[safe](https://evil.example)")) == ["safe (https://evil.example)", ""]


def test_a_tool_call_has_its_time_and_its_diff():
    diff = FileDiff("/a", ("@@ -1 +1 @@", "-a", "+b"))
    call = ShownCall("1", "Edit", "edit", "completed", 1.0, 1.5, (diff,), "done\n")

    assert text_of(call) == [
        "✓ Edit (edit)  0.5s",
        "  /a",
        "  @@ -1 +1 @@",
        "  -a",
        "  +b",
        "  done",
    ]


def test_a_long_diff_is_cut_in_a_tool_call_and_not_in_a_question():
    diff = FileDiff("/a", tuple(f"+{n}" for n in range(100)))
    call = ShownCall("1", "Edit", status="completed", ended=1.0, diffs=(diff,))

    assert text_of(call)[-1] == "  … 60 more lines"
    question = shown(renderables.question("Edit?", call, "", [{"name": "Allow"}]))
    assert "+99" in question
    assert question.splitlines()[-1].rstrip() == "  1  Allow"


@pytest.mark.parametrize(
    "block",
    [
        Answer(f"a {HOSTILE} [b](<x{HOSTILE}>) `{HOSTILE}`\n\n```\n{HOSTILE}\n```\n"),
        Thought(HOSTILE),
        PastPrompt(HOSTILE),
        Note(HOSTILE),
        ShownCall("1", HOSTILE, HOSTILE, "failed", diffs=(FileDiff(HOSTILE, ("+" + HOSTILE,)),)),
        ShownCall("1", "x", output=HOSTILE),
    ],
    ids=lambda block: type(block).__name__,
)
def test_no_control_character_of_an_agent_is_written(block):
    written = shown(renderables.block(block, 0.0))

    assert [char for char in written if not char.isprintable() and char != "\n"] == []


def test_escapes_in_colours_are_those_of_rich():
    written = shown(renderables.block(Answer(f"**bold** {HOSTILE}"), 0.0), colour=True)

    assert written.count("\x1b") == 2  # bold on and off


def test_questions_plans_and_running_calls_are_clean_too():
    call = ShownCall("1", HOSTILE)
    written = (
        shown(renderables.question(HOSTILE, call, HOSTILE, [{"name": HOSTILE}]))
        + shown(renderables.plan([ShownPlanEntry(HOSTILE, "pending")]))
        + shown(renderables.live_call(call, 1.0))
        + shown(renderables.tail(Answer(HOSTILE), 5))
        + shown(renderables.tail(Thought(HOSTILE), 5))
    )

    assert [char for char in written if not char.isprintable() and char != "\n"] == []


def test_the_tail_has_the_last_lines():
    text = "\n".join(f"- {n}" for n in range(50))

    assert [line.strip() for line in shown(renderables.tail(Answer(text), 2)).splitlines()] == [
        "• 48",
        "• 49",
    ]


def test_a_narrow_terminal_folds_lines():
    diff = FileDiff("/a", ("+" + "x" * 50,))
    call = ShownCall("1", "Edit " * 20, status="completed", ended=1.0, diffs=(diff,))

    assert max(map(len, text_of(call, width=20))) <= 20
