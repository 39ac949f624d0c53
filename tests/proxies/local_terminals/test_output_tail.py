from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxies.local_terminals.terminal import OutputTail


def tail(data, limit, *, is_ended=True, parts=1):
    found = OutputTail(limit)
    for start in range(0, len(data), parts):
        found.add(data[start : start + parts])
    return found.text(is_ended=is_ended)


@pytest.mark.parametrize("text", ["ä", "€", "😀"])
def test_an_incomplete_character_waits_for_its_rest(text):
    data = text.encode()
    for length in range(1, len(data)):
        assert tail(b"a" + data[:length], 99, is_ended=False) == ("a", False)
        assert tail(b"a" + data[:length], 99) == ("a\ufffd", False)
    assert tail(b"a" + data, 99, is_ended=False) == ("a" + text, False)


@given(st.binary(max_size=60), st.integers(0, 40), st.booleans())
def test_any_bytes_are_text_within_the_limit(data, limit, is_ended):
    text, is_cut = tail(data, limit, is_ended=is_ended)

    assert len(text.encode()) <= limit
    assert is_cut or data.decode(errors="replace").startswith(text)


@given(st.text(max_size=40), st.integers(0, 60))
def test_text_is_lost_only_at_the_start_and_by_less_than_a_character(text, limit):
    kept, is_cut = tail(text.encode("utf-8", "ignore"), limit)

    text = text.encode("utf-8", "ignore").decode()
    assert text.endswith(kept)
    assert is_cut == (kept != text)
    assert not is_cut or len(kept.encode()) > limit - 4


def test_memory_is_bounded_by_the_limit():
    found = OutputTail(1000)
    for _ in range(1000):
        found.add(b"x" * 1000)
        assert len(found._data) <= 2 * 1000 + 4096 + 1000
    assert found.text(is_ended=True) == ("x" * 1000, True)
    assert found.text(is_ended=True, limit=7) == ("x" * 7, True)
