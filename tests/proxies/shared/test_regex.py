from __future__ import annotations

import pytest

from proxies.shared.paths import matches
from proxies.shared.regex import MAX_PROGRAM, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("a(?=b)", "lookahead .* put the text into the pattern"),
        ("a(?!b)", "negative lookahead .* use a second rule"),
        ("(?<=a)b", "lookbehind .* put the text into the pattern"),
        ("(?<!a)b", "negative lookbehind .* begin with"),
        (r"(a)\1", r"back-reference `\\1` .* repeat the pattern"),
        ("(?P<n>a)(?P=n)", "back-reference .* repeat the pattern"),
        ("(?>a)", "atomic group .* write `\\(\\?:`"),
        ("a++", r"`\+\+` .* write `\+`"),
        ("(a)(?(1)b|c)", "conditional group .* write both"),
        (r"a\Z", r"write `\\z`"),
        (r"\u00e9", r"write `\\x"),
        ("a{1001}", "at most 1000"),
        (".{1000}.{1000}", "too large"),
        ("(", "missing"),
    ],
)
def test_an_unsupported_pattern_names_the_construct_and_its_replacement(pattern, advice):
    with pytest.raises(ValueError, match=f"(?s)not a regular expression: .*{advice}"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*c", "(.*)*x", r"(\w+\s?)*!"])
def test_a_pattern_that_makes_re_backtrack_for_ever_is_matched_in_linear_time(pattern):
    text = "a" * 300_000 + "b"

    assert not compile_pattern(pattern).search(text)
    assert not compile_pattern(pattern).fullmatch(text)


def test_a_pattern_at_the_size_limit_is_still_compiled():
    assert compile_pattern("a{1000}").search("a" * 1000)
    compile_pattern("é" * (MAX_PROGRAM // 4))


def test_half_a_surrogate_pair_is_matched_as_a_replacement_character():
    assert compile_pattern("^.$").fullmatch("\ud800")


def test_a_dot_matches_newlines_only_on_request():
    assert not compile_pattern("a.b").fullmatch("a\nb")
    assert compile_pattern("a.b", dot_all=True).fullmatch("a\nb")
    assert not compile_pattern("a$").fullmatch("a\n")


def test_errors_are_not_written_to_stderr(capfd):
    with pytest.raises(ValueError):
        compile_pattern("(((")

    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("glob", ["**/" * 30 + "x", "**" * 30 + "x", "*a" * 60 + "b", "a**/" * 30])
def test_a_path_glob_takes_linear_time(glob):
    assert not matches("/w/" + "a/" * 20_000 + "y", glob, "/w")


@pytest.mark.parametrize(
    ("glob", "path", "directory", "expected"),
    [
        ("*.py", "/w*/a.py", "/w*", True),
        ("*.py", "/w/src/a.py", "/w", False),
        ("**/*.py", "/w/a.py", "/w", True),
        ("**/*.py", "/w/src/deep/a.py", "/w", True),
        ("src", "/w/src2/a.py", "/w", False),
        ("a?", "/w/ab", "/w", True),
        ("a?", "/w/a/", "/w", False),
        ("*.py", "/work/a.py", "/w*", False),
        (".", "/w", "/w", True),
        (".", "/w/a", "/w", True),
        ("..", "/a/c", "/a/b", True),
        ("../c/*", "/a/c/x", "/a/b", True),
        ("../../../x", "/x", "/a", True),
        ("/", "/anything", "", True),
        ("/", "/anything", "/w", True),
        ("**", "/w", "/w", False),
        ("src/../b", "/w/b", "/w", True),
        ("a", "/w/a", "", False),
        ("a", "/a", "w", False),
    ],
)
def test_a_relative_glob_is_anchored_in_its_directory(glob, path, directory, expected):
    assert matches(path, glob, directory) is expected


def test_a_home_directory_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/[me]*")

    assert matches("/home/[me]*/.ssh/id", "~/.ssh", "/w")
    assert matches("/home/[me]*/x", "~", "/w")
    assert not matches("/home/mex/.ssh/id", "~/.ssh", "/w")
