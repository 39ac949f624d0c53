"""Streamed Markdown in whole blocks."""

from __future__ import annotations

import pytest

from conductor.cli.prompt.view import MarkdownStream

TEXT = "# Title\n\nOne\ntwo.\n\n```python\na = 1\n\nb = 2\n```\n\n1. x\n\n   more of x\n\n2. y\n"
BLOCKS = [
    "# Title\n\n",
    "One\ntwo.\n\n",
    "```python\na = 1\n\nb = 2\n```\n\n",
    "1. x\n\n   more of x\n\n",
]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_blocks_do_not_depend_on_how_the_text_is_cut(size):
    stream = MarkdownStream()
    blocks = []
    for start in range(0, len(TEXT), size):
        blocks += stream.feed(TEXT[start : start + size])

    assert blocks == BLOCKS
    assert stream.tail == "2. y\n"


def test_a_shorter_fence_does_not_end_a_code_block():
    stream = MarkdownStream()

    assert stream.feed("````\n```\n\ninside\n````\n\nafter") == ["````\n```\n\ninside\n````\n\n"]


def test_a_text_without_ends_of_lines_is_split_too():
    stream = MarkdownStream()

    blocks = [block for _ in range(300) for block in stream.feed("x" * 1000)]

    assert len(blocks) == 4
    assert max(map(len, blocks)) < 70_000
    assert sum(map(len, blocks)) + len(stream.tail) == 300_000
