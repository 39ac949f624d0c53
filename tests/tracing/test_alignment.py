import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.tracing.alignment import align


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("ab", "ab", [(0, 0), (1, 1)]),
        ("ab", "", [(0, None), (1, None)]),
        ("", "ab", [(None, 0), (None, 1)]),
        ("abc", "ac", [(0, 0), (1, None), (2, 1)]),
        ("ac", "abc", [(0, 0), (None, 1), (1, 2)]),
        ("axc", "ayc", [(0, 0), (1, None), (None, 1), (2, 2)]),
    ],
)
def test_equal_items_are_pairs_and_the_others_are_alone(old, new, expected):
    assert align(old, new) == expected


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_every_item_is_there_once_and_in_order(old, new):
    pairs = align(old, new)

    assert [i for i, _ in pairs if i is not None] == list(range(len(old)))
    assert [j for _, j in pairs if j is not None] == list(range(len(new)))
    assert all(old[i] == new[j] for i, j in pairs if i is not None and j is not None)


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_the_common_part_is_the_longest(old, new):
    lengths = {(0, j): 0 for j in range(len(new) + 1)}
    for i, a in enumerate(old, 1):
        lengths[i, 0] = 0
        for j, b in enumerate(new, 1):
            longer = lengths[i - 1, j - 1] + 1 if a == b else 0
            lengths[i, j] = max(longer, lengths[i - 1, j], lengths[i, j - 1])

    common = [pair for pair in align(old, new) if None not in pair]

    assert len(common) == lengths[len(old), len(new)]


def test_few_differences_in_long_sequences_of_few_items_are_found_quickly():
    old = list("abcde" * 20_000)
    new = [each for at, each in enumerate(old) if at not in (5_000, 50_000, 99_000)]
    started = time.process_time()

    alone = [pair for pair in align(old, new) if None in pair]

    assert len(alone) == 3
    assert time.process_time() - started < 5  # half a second; without Myers' algorithm, minutes


def test_sequences_without_anything_in_common_are_aligned():
    old, new = list(range(5000)), list(range(5000, 10_000))

    assert len(align(old, new)) == 10_000
