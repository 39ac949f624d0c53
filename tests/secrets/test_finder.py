from __future__ import annotations

import itertools
from functools import cache

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from conductor.secrets import finder
from conductor.secrets.finder import PATTERNS, HeldTail, SecretFinder, prefix_pattern
from tests.secrets.test_formats import EXAMPLES as KEYS

EXAMPLES = {
    **KEYS,
    "key-body": "MIIEowIBAAKCAQEAvB7cK3d9Q2hXk1mZpR8sT4uV5wY6zA0bC1dE2fG3hI4jK5lM",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----",
    "url-password": "hunter2",
}
VALUE = "correct horse battery staple"


@pytest.fixture
def secrets():
    return SecretFinder(PATTERNS, {"PASSWORD": VALUE})


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_finds_its_kind(secrets, name):
    before, after = ("db://me:", "@host") if name == "url-password" else ("a:\n ", " \nz")

    shown = secrets.redact(f"{before}{EXAMPLES[name]}{after}")

    assert shown == f"{before}[redacted:{name}:1]{after}"


@pytest.mark.parametrize(
    "before",
    [
        *("KEY=", "x_", "\\n", "\\t", "\\u001b", "\\x22", "%3D", "=3D", "é", '{"a":"'),
        *("\x1b[31m", "\x1b[01;31m\x1b[K", "\\u001b[31m", "\\x1b[1;31m", "\\033[0m", "\\e[m"),
    ],
)
def test_a_secret_may_stand_behind_anything_but_a_word(before):
    for name in {*PATTERNS} - {"key-body", "url-password"}:
        secrets = SecretFinder(PATTERNS, {})
        text = f"{before}{EXAMPLES[name]}"
        tail, pieces = HeldTail(secrets, 1000), [text[at : at + 3] for at in range(0, len(text), 3)]

        shown = f"{before}[redacted:{name}:1]"
        assert secrets.redact(text) == shown
        assert "".join(map(tail.feed, pieces)) + tail.end() == shown


@pytest.mark.parametrize(
    "text",
    ["ask-me-anything-you-like-please", "https://example.com:8080/a@b", "AKIA is a prefix", "sk-1"],
)
def test_text_that_is_no_secret_stays(secrets, text):
    assert secrets.redact(text) == text


@pytest.mark.parametrize("secret", [EXAMPLES["key-body"], EXAMPLES["github-token"], VALUE])
def test_a_secret_is_found_behind_long_words_that_are_none(secrets, secret):
    # The words match the pattern of key lines, and only that.
    text = f"{'x' * 100}\n{'y' * 70}\n"

    shown = secrets.redact(f"{text}{secret}\n")

    assert secret not in shown
    assert shown.startswith(text)


def test_the_same_secret_has_the_same_placeholder_and_comes_back(secrets):
    text = f"{VALUE}, {EXAMPLES['github-token']}, {VALUE}"
    redacted = secrets.redact(text)

    assert redacted == "[redacted:PASSWORD:1], [redacted:github-token:2], [redacted:PASSWORD:1]"
    assert secrets.restore(redacted + " [redacted:x:9]") == text + " [redacted:x:9]"


def test_a_value_that_begins_like_another_does_not_hide_it():
    secrets = SecretFinder({}, {"A": "12345678", "B": "123456789"})

    assert secrets.redact("123456789 12345678") == "[redacted:B:1] [redacted:A:2]"


def test_groups_in_patterns_do_not_disturb():
    secrets = SecretFinder({"one": "(a)(?P<x>b)+", "two": "c(d)"}, {})

    assert secrets.redact("abb cd") == "[redacted:one:1] [redacted:two:2]"


def test_a_secret_in_pieces_is_found_and_nothing_of_it_is_shown_before(secrets):
    tail = HeldTail(secrets, 1000)
    token = EXAMPLES["github-token"]

    shown = [tail.feed(piece) for piece in ["the token is g", token[1:20], token[20:], ", yes"]]

    assert shown == ["the token is ", "", "", "[redacted:github-token:1], yes"]
    assert tail.end() == ""


def test_text_that_can_no_longer_become_a_secret_is_shown_at_once(secrets):
    tail = HeldTail(secrets, 1000)

    assert [tail.feed(piece) for piece in ["Hello g", "reat", " world"]] == [
        "Hello ",
        "great",
        " world",
    ]


def test_withheld_text_is_shown_at_the_end(secrets):
    tail = HeldTail(secrets, 1000)
    assert tail.feed("correct horse") == ""
    assert tail.end() == "correct horse"

    assert tail.feed(f"a {EXAMPLES['github-token']}") == "a "
    assert tail.end() == "[redacted:github-token:1]"


def test_a_word_that_began_in_the_piece_before_is_still_one_word(secrets):
    tail = HeldTail(secrets, 1000)

    pieces = ["ta", "sk-runner-configuration-file-name", " x"]
    assert "".join(map(tail.feed, pieces)) + tail.end() == "".join(pieces)


def test_a_secret_that_is_too_long_to_hold_is_not_shown_either(secrets):
    tail = HeldTail(secrets, 50)
    pieces = ["the sk-" + "a" * 40, "b" * 40, "c" * 40, "ddd and", " more"]

    shown = "".join(map(tail.feed, pieces)) + tail.end()

    assert shown == "the [redacted:too-long] and more"


@given(
    st.lists(
        st.sampled_from(
            [
                *EXAMPLES.values(),
                VALUE,
                *("x", " ", "\n", "\n12\t", "é", '"', "=", "sk-", "correct ", "ghp_", "://"),
                "://me:hunter2@",
                "-----BEGIN PRIVATE KEY-----",
                "-----END PRIVATE KEY-----",
            ]
        ),
        max_size=8,
    ).map("".join),
    st.randoms(use_true_random=False),
)
def test_chunks_are_redacted_as_the_whole_text(text, random):
    whole, pieces = SecretFinder(PATTERNS, {"V": VALUE}), SecretFinder(PATTERNS, {"V": VALUE})
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))
    tail = HeldTail(pieces, 100_000)

    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert "".join(map(tail.feed, parts)) + tail.end() == whole.redact(text)


@given(st.text(), st.integers(0, 50))
def test_texts_of_any_kind_come_out_as_they_are(text, cut):
    secrets = SecretFinder(PATTERNS, {"V": VALUE})
    tail = HeldTail(secrets, 100_000)

    assert secrets.redact(text) == text
    assert tail.feed(text[:cut]) + tail.feed(text[cut:]) + tail.end() == text


def test_a_pattern_may_name_the_secret_in_it():
    secrets = SecretFinder({"login": r"(?i)(login|password)\s*[=:]\s*(?P<secret>\S+)"}, {})
    tail = HeldTail(secrets, 1000)

    assert secrets.redact("Password: tea, yes") == "Password: [redacted:login:1] yes"
    pieces = [tail.feed(piece) for piece in ["a PASS", "word =", " te", "a, yes"]]
    assert pieces == ["a ", "", "", "PASSword = [redacted:login:1] yes"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_of_secrets_that_overlap_nothing_is_shown(size):
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{'a1B2' * 3}\n-----END RSA PRIVATE KEY-----"
    patterns = {"login": r"password = (?P<secret>\S+)", **PATTERNS}
    text = f"my password = {key} and"
    tail = HeldTail(SecretFinder(patterns, {"V": "abcabcabcabd"}), 1000)

    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    shown = "".join(map(tail.feed, pieces)) + tail.end()

    assert shown == "my password = [redacted:login:1] and"
    assert SecretFinder(patterns, {}).redact(text) == shown


def test_a_lazy_match_is_shown_when_it_exceeds_the_limit():
    secrets = SecretFinder({"quoted": r"<<(?s:.)*?>>"}, {})
    tail = HeldTail(secrets, 20)

    shown = [tail.feed(piece) for piece in ["a <<b", ">> c", " d" * 20]]

    assert shown == ["a ", "", f"[redacted:quoted:1] c{' d' * 20}"]


class Counting:
    """A compiled pattern that counts the bytes it is given to look at."""

    bytes = 0

    def __init__(self, pattern):
        self.pattern = pattern

    def __getattr__(self, name):
        return getattr(self.pattern, name)

    def search(self, data, start=0):
        found = self.pattern.search(data, start)
        # As RE2 works: up to the end of what it finds; from the end, if it is only there.
        if self.pattern.pattern.endswith("\\z"):
            Counting.bytes += len(data) - (len(data) if found is None else found.start())
        else:
            Counting.bytes += (len(data) if found is None else found.end()) - start
        return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_work_is_linear_in_the_length_of_the_text(name, monkeypatch):
    """Beginnings of secrets over and over, alone and with other secrets between them."""
    monkeypatch.setattr(
        finder, "_compile", lambda source, real=finder._compile: Counting(real(source))
    )
    secrets = SecretFinder(PATTERNS, {"V": VALUE})

    def work(text):
        Counting.bytes = 0
        secrets.redact(text)
        tail = HeldTail(secrets, 2000)
        tail.feed(text)
        tail.end()
        return Counting.bytes

    whole = "AKIA" + "ABCD1234" * 2 + " "
    for length in (3, len(EXAMPLES[name]) - 1):
        for between in ("", "-", "\n", f"-{whole}"):
            unit = EXAMPLES[name][:length] + between
            # More than is held back, so that both sizes are alike.
            done = work(unit * (8000 // len(unit)))
            assert done <= 2.2 * work(unit * (4000 // len(unit))) + 1000, unit
            assert done < 100 * 8000


def test_secrets_are_not_shown(secrets):
    secrets.redact(VALUE)
    assert VALUE not in repr(secrets)
    tail = HeldTail(secrets, 100)
    tail.feed(VALUE)
    assert VALUE not in repr(tail)


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        (
            r"Bearer (?P<secret>\S+)|anonymous",
            "anonymous Bearer x",
            "[redacted:x:1] Bearer [redacted:x:2]",
        ),
        (r"pw(?:=(?P<secret>\w+))?", "pw pw=a", "[redacted:x:1] pw=[redacted:x:2]"),
        (r"(?P<secret>[0-9]*)-key", "-key 12-key", "-key [redacted:x:1]-key"),
        (r"pw=(?P<secret>\w*)", "pw= pw=a", "pw= pw=[redacted:x:1]"),
    ],
)
def test_a_named_part_that_is_missing_or_empty_is_no_secret(pattern, text, shown):
    whole, pieces = (
        SecretFinder({"x": pattern}, {}),
        HeldTail(SecretFinder({"x": pattern}, {}), 1000),
    )

    assert whole.redact(text) == shown
    assert "".join(map(pieces.feed, text)) + pieces.end() == shown


@pytest.mark.parametrize(
    "text",
    [
        "redis" + "://" + ":hunter2hunter@host:6379/0",
        "postgres" + "://" + "me:p@ss" + "w0rd@host/db",
        "xapp" + "-1-A1-123-" + "a1B2" * 5,
        "xoxc" + "-123456789012-abc",
        "whsec" + "_" + "a1B2" * 6,
        "GOCSPX" + "-" + "a1B2" * 6,
    ],
)
def test_other_forms_of_secrets_are_found(secrets, text):
    assert "redacted" in (redacted := secrets.redact(f"see {text} there"))
    assert not any(part in redacted for part in ("hunter", "ss" + "w0rd", "-123", "a1B2"))


def test_only_so_much_of_secrets_is_remembered():
    secrets = SecretFinder({"long": r"<[0-9]+>"}, {})
    texts = [f"<{each}{'0' * (1 << 20)}>" for each in range(17)]

    shown = secrets.redact(" ".join([*texts, texts[0], "<1>"])).split()

    assert shown[14:] == [
        *["[redacted:long:15]", "[redacted:long]", "[redacted:long]"],
        shown[0],
        "[redacted:long:16]",
    ]
    assert secrets.restore(shown[0] + shown[16]) == f"{texts[0]}[redacted:long]"


SYNTAX = [
    *("a|bc", "a(b|c)d", "(?:ab)+c", "(?:ab){2,3}c?", "a{2}b*", "a*?b", "(?P<x>a)(?<y>b)"),
    *("(?i)aB|c", "a(?i:b)c", "(?i)a(?-i)b", "(?U)a+b", "[^a]b", "[]a]b", "[a\\]]b"),
    *("[[:upper:]a]b", "\\Qa.b\\Ec", "\\x61\\x{62}", "\\pL.b", "\\141b", "\\bab\\b", "^a$"),
    *("(?m)^a$\\nb", "a\\.b", "a{b", "a{,2}b", "()a", "a{0}b", "(a|)b"),
]


@cache
def texts(alphabet, longest):
    lengths = range(longest + 1)
    return ["".join(t) for n in lengths for t in itertools.product(alphabet, repeat=n)]


def language(pattern, alphabet, longest):
    """All texts up to a length that the pattern matches as a whole."""
    return set(filter(re2.compile(pattern).fullmatch, texts(alphabet, longest)))


@pytest.mark.parametrize("pattern", SYNTAX)
def test_every_prefix_is_matched_and_the_pattern_means_the_same(pattern):
    alphabet = "abcABC.]{,2\n" if len(pattern) < 6 else "abcAB.\n"
    found = prefix_pattern(pattern)
    whole = language(pattern, alphabet, 4)

    assert language(found.whole, alphabet, 4) == whole
    prefixes = {text[:end] for text in whole for end in range(len(text) + 1)}
    assert all(map(re2.compile(found.prefixes).fullmatch, prefixes))


@pytest.mark.parametrize("pattern", ["abc", "a|bc", "(?:ab){2}c?", "a{2}b*", "a(?i:b)c"])
def test_nothing_but_prefixes_is_matched(pattern):
    whole = language(pattern, "abcB", 7)
    prefixes = {text[:end] for text in whole for end in range(len(text) + 1)}

    found = prefix_pattern(pattern).prefixes
    assert language(found, "abcB", 4) == {text for text in prefixes if len(text) < 5}
