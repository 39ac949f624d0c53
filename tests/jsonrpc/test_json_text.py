"""The UTF-8 check of lines finds the first error, in copies of lines that were checked too."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conductor.chain.build import build_components
from conductor.chainfile.model import ComponentSpec
from conductor.jsonrpc import json_text
from conductor.jsonrpc.json_text import utf8_error, utf8_error_in_copy

SIZE = 70_000
HEADS = [
    b'{"jsonrpc":"2.0","method":"session/update","params":',
    b'{"jsonrpc":"2.0","method":"proxy/successor","params":{"method":"session/update","params":',
    b'{"jsonrpc":"2.0","id":"\xc3\xa9","result":',
]
TAILS = [b"}\n", b"}}\n", b'},"id":1}\n', b"}"]
CHARACTERS = ["é", "☃", "😀", "xé", "xx☃", "xxx😀"]
CHANGES = [b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"x", b""]


@pytest.fixture(autouse=True)
def _forget():
    json_text._kept.clear()


def payload(character: str) -> bytes:
    text = character * (SIZE // len(character.encode()))
    return b'{"text":"%b"}' % text.encode()


lines = st.builds(
    lambda head, character, tail: head + payload(character) + tail,
    st.sampled_from(HEADS),
    st.sampled_from(CHARACTERS),
    st.sampled_from(TAILS),
)
changes = st.tuples(st.integers(0, SIZE + 200), st.integers(0, 4), st.sampled_from(CHANGES))


@given(line=lines, copies=st.lists(st.tuples(st.sampled_from(HEADS), changes), max_size=4))
@example(line=HEADS[0] + payload("é") + b"}\n", copies=[(HEADS[1], (5, 1, b"\xc3"))])
@example(line=HEADS[0] + payload("☃") + b"}\n", copies=[(HEADS[1], (700, 1, b"\xff"))])
def test_a_copy_has_the_error_that_a_check_of_all_its_bytes_finds(line, copies):
    """Copies get another head, and some bytes in place of others."""
    found = [utf8_error_in_copy(line)]
    expected = [utf8_error(line)]
    for head, (start, size, change) in copies:
        copied = head + line[line.index(b'{"text"') :]
        copied = copied[:start] + change + copied[start + size :]
        found.append(utf8_error_in_copy(copied))
        expected.append(utf8_error(copied))

    assert found == expected


def test_lines_up_to_a_bound_are_kept_the_newest_ones():
    some = [HEADS[0] + payload("é" + "x" * count) * 12 + b"}\n" for count in range(20)]
    for line in some:
        assert utf8_error_in_copy(line) is None

    assert 0 < sum(map(len, json_text._kept)) <= json_text._KEPT_BYTES
    assert list(json_text._kept) == some[-len(json_text._kept) :]


def test_payloads_are_expected_again_from_processes_behind_each_other():
    spec = ComponentSpec(name="component", run=[sys.executable])
    chained, (alone,) = (build_components([spec] * count, mode="agent") for count in (3, 1))

    assert [each.repeats_payloads for each in chained] == [True, True, True]
    assert not alone.repeats_payloads


@pytest.mark.benchmark
def test_a_copy_is_checked_in_half_of_the_time():
    line = HEADS[0] + payload("xx☃" * 8) * 8 + b"}\n"
    times: dict[str, float] = {}
    for _ in range(20):
        json_text._kept.clear()
        for name in ("original", "copy"):
            begin = time.process_time()
            assert utf8_error_in_copy(line + b"") is None
            spent = time.process_time() - begin
            times[name] = min(spent, times.get(name, spent))

    assert times["copy"] < 0.5 * times["original"]
