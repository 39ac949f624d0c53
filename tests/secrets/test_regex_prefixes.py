from __future__ import annotations

import itertools
from functools import cache

import pytest
import re2

from conductor.secrets.regex_prefixes import read

PATTERNS = [
    "abc",
    "a|bc",
    "a(b|c)d",
    "(?:ab)+c",
    "(?:ab){2,3}c?",
    "a{2}b*",
    "a*?b",
    "(?P<x>a)(?<y>b)",
    "(?i)aB|c",
    "a(?i:b)c",
    "(?i)a(?-i)b",
    "(?U)a+b",
    "[^a]b",
    "[]a]b",
    "[a\\]]b",
    "[[:upper:]a]b",
    "\\Qa.b\\Ec",
    "\\x61\\x{62}",
    "\\pL.b",
    "\\141b",
    "\\bab\\b",
    "^a$",
    "(?m)^a$\\nb",
    "a\\.b",
    "a{b",
    "a{,2}b",
    "()a",
    "a{0}b",
    "(a|)b",
]


@cache
def texts(alphabet, longest):
    lengths = range(longest + 1)
    return ["".join(t) for n in lengths for t in itertools.product(alphabet, repeat=n)]


def language(pattern, alphabet, longest):
    """All texts up to a length that the pattern matches as a whole."""
    return set(filter(re2.compile(pattern).fullmatch, texts(alphabet, longest)))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_prefix_is_matched_and_the_pattern_means_the_same(pattern):
    alphabet = "abcABC.]{,2\n" if len(pattern) < 6 else "abcAB.\n"
    source, longest = read(pattern), 4
    whole = language(pattern, alphabet, longest)

    assert language(source.whole, alphabet, longest) == whole
    prefixes = {text[:end] for text in whole for end in range(len(text) + 1)}
    assert all(map(re2.compile(source.prefixes).fullmatch, prefixes))
    assert source.shortest <= min(map(len, whole), default=source.shortest)


@pytest.mark.parametrize("pattern", ["abc", "a|bc", "(?:ab){2}c?", "a{2}b*", "a(?i:b)c"])
def test_nothing_but_prefixes_is_matched(pattern):
    whole = language(pattern, "abcB", 7)
    prefixes = {text[:end] for text in whole for end in range(len(text) + 1)}

    assert language(read(pattern).prefixes, "abcB", 4) == {t for t in prefixes if len(t) < 5}


def test_only_the_secret_stays_a_group():
    source = read(r"(a)(?P<x>b)(?P<secret>c|d)")

    assert re2.compile(source.whole).groupindex == {"secret": 1}
    assert re2.compile(source.prefixes).groups <= 1
