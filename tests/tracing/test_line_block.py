"""Lines that are written together are masked together."""

from __future__ import annotations

import json

import pytest

from conductor.tracing.line_block import LineBlock
from conductor.tracing.masking import Masker

MASKER = Masker(frozenset({"hunter2-hunter2"}))
CLEAN = b'{"text":"x"}\n'
SECRET = b'{"text":"a hunter2-hunter2"}\n'
LARGE = b'{"text":"%b"}\n' % (b"x" * 100_000)


def test_lines_without_secrets_are_as_they_were_added():
    block = LineBlock()
    block.add(CLEAN)
    block.add_pieces([b'{"te', b'xt":1}\n'], [CLEAN])
    block.add(LARGE)

    assert block.masked(MASKER) == CLEAN + b'{"text":1}\n' + LARGE


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("secret", [SECRET, LARGE.replace(b"xx", SECRET[9:-3], 1)])
def test_a_secret_in_any_line_is_masked(at, secret):
    lines = [CLEAN, LARGE, CLEAN, LARGE]
    lines.insert(at, secret)
    block = LineBlock()
    for each in lines:
        block.add_pieces([each[:3], each[3:]], [each])

    masked = block.masked(MASKER).splitlines(keepends=True)

    assert masked[:at] + masked[at + 1 :] == lines[:at] + lines[at:][1:]
    assert "hunter2" not in masked[at].decode()
    assert json.loads(masked[at])["masked"]


@pytest.mark.parametrize("other", [CLEAN, LARGE])
def test_what_two_hops_have_in_common_is_masked_on_both(other):
    block = LineBlock()
    for each in (other, SECRET, SECRET, other, other):
        block.add_pieces([each], [each])

    found = block.masked(MASKER)

    assert b"hunter2" not in found
    assert found.count(b'"masked":true') == 2


def test_an_empty_block_has_no_lines():
    assert LineBlock().masked(MASKER) == b""
