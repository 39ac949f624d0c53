"""Private keys, whole and in parts, and what only looks like one."""

from __future__ import annotations

import base64
import json
import random

import pytest

from conductor.secrets.finder import PATTERNS, HeldTail, SecretFinder
from conductor.secrets.masking import redact


def key(name="RSA PRIVATE KEY", size=1190, width=64):
    """The lines of something that looks exactly like a private key."""
    encoded = base64.b64encode(random.Random(1).randbytes(size)).decode()
    body = [encoded[at : at + width] for at in range(0, len(encoded), width)]
    return [f"-----BEGIN {name}-----", *body, f"-----END {name}-----"]


KEYS = {
    "rsa": key(),
    "encrypted": key("ENCRYPTED PRIVATE KEY", 1329),
    "ec": key("EC PRIVATE KEY", 121),
    "ed25519": key("PRIVATE KEY", 48),
    "openssh": key("OPENSSH PRIVATE KEY", 1823, 70),
    "pgp": key("PGP PRIVATE KEY BLOCK", 2000),
    "wide": key("PRIVATE KEY", 1217, 76),
}


@pytest.fixture
def secrets():
    return SecretFinder(PATTERNS, {})


def leaked(lines, shown):
    """The lines of a key's body of which something is shown."""
    return [line for line in lines[1:-1] if line in shown or line[:20] in shown]


@pytest.mark.parametrize("name", KEYS)
def test_a_whole_key_is_one_secret(secrets, name):
    text = "\n".join(KEYS[name])

    shown = secrets.redact(f"before\n{text}\nafter")

    assert shown == "before\n[redacted:private-key:1]\nafter"
    assert secrets.restore(shown) == f"before\n{text}\nafter"


@pytest.mark.parametrize("newline", ["\r\n", "\\n"])
def test_a_key_may_have_other_line_ends(secrets, newline):
    text = newline.join(KEYS["rsa"])
    assert secrets.redact(f'{{"key": "{text}"}}') == '{"key": "[redacted:private-key:1]"}'


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("lines", [1, 2, 7])
def test_a_key_that_is_read_by_ranges_shows_no_line(secrets, name, lines):
    whole = KEYS[name]
    ranges = ["\n".join(whole[at : at + lines]) + "\n" for at in range(0, len(whole), lines)]

    shown = leaked(whole, "".join(map(secrets.redact, ranges)))

    # The last line alone is too short to be told from a word.
    assert shown in ([], [whole[-2]] if lines == 1 or len(whole) % lines == 1 else [])
    assert all(len(line) < 60 for line in shown)


def test_lines_of_a_key_may_be_in_escaped_json(secrets):
    lines = KEYS["rsa"][3:-1]
    text = json.dumps({"stdout": "\n".join(["some of it:", *lines, "done"])})

    shown = secrets.redact(text)

    assert leaked(["", *lines, ""], shown) == []
    assert shown.startswith('{"stdout": "some of it:\\n[redacted:')


@pytest.mark.parametrize("header", ["Comment: a -- b", "DEK-Info: AES-128-CBC,A", "------ x", "-"])
def test_a_key_with_a_header_is_masked_to_its_end(secrets, header):
    begin, *lines = KEYS["rsa"]
    text = "\n".join([begin, header, "", *lines])

    assert secrets.redact(f"a {text} b") == "a [redacted:private-key:1] b"
    assert redact(f"a {text} b") == redact(json.dumps(f"a {text} b"))[1:-1] == "a *** b"


def test_a_key_without_its_end_goes_on_to_the_end(secrets):
    text = "\n".join(KEYS["rsa"][:-1])
    assert secrets.redact(f"a {text} more\n\nand more") == "a [redacted:private-key:1]"


@pytest.mark.parametrize("before", ["    ", "> ", "12\t", "     7→", "3: ", "12 | ", "+", "-", '"'])
def test_lines_may_be_indented_numbered_and_marked(secrets, before):
    lines = KEYS["rsa"][1:-1]
    after = '",' if before == '"' else ""

    shown = secrets.redact("\n".join(f"{before}{line}{after}" for line in lines))

    assert leaked(["", *lines, ""], shown) == []
    assert shown.startswith(before)


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(5, 9), slice(0, -1)])
@pytest.mark.parametrize("size", [7, 65])
def test_chunks_are_redacted_as_the_whole_text(part, size):
    text = "Here it is:\n" + "\n".join(KEYS["rsa"][part]) + "\nis the key, no?"
    whole, tail = SecretFinder(PATTERNS, {}), HeldTail(SecretFinder(PATTERNS, {}), 16384)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]

    shown = "".join(map(tail.feed, pieces)) + tail.end()

    assert shown == whole.redact(text)
    assert leaked(KEYS["rsa"][part], shown) == []


@pytest.mark.parametrize("part", [slice(None), slice(1, -1)])
def test_no_line_of_a_key_that_is_too_long_to_hold_is_shown(secrets, part):
    lines = key(size=20_000)
    text = "a:\n" + "\n".join(lines[part]) + "\nafter that"
    tail = HeldTail(secrets, 1000)

    shown = "".join(tail.feed(text[at : at + 33]) for at in range(0, len(text), 33)) + tail.end()

    assert leaked(lines, shown) == []
    assert shown.startswith("a:\n[redacted:")
    assert shown.endswith("\nafter that")


@pytest.mark.parametrize(
    "text",
    [
        "src/main/java/com/example/project2/service/implementation/UserServiceTest/Fixtures1",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855  file.txt",
        "aVeryLongNameThatSomebodyGaveToATestWhichSaysWhatItIsAboutInWords",
        '  "integrity": "sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC",',
        "x" * 64,
        "=" * 70,
        "-----BEGIN CERTIFICATE REQUEST-----",
        "the PRIVATE KEY is in -----BEGIN something else-----",
    ],
)
def test_text_that_is_no_key_stays(secrets, text):
    assert secrets.redact(f"{text}\n{text}\n") == f"{text}\n{text}\n"
