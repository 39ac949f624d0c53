"""The table of secrets: formats of keys, and names of members, variables and options. Pure.

A format or a name in it is masked in logs, errors, traces and stderr, found by `redact`, and
detected in the settings of components.

A name is split into words (`GITHUB_TOKEN`, `apiKey`, `x-api-key`). It names a secret if one of them
is in the table, unless the last one marks metadata about a secret (`TOKEN_FILE`, `KEY_ID`). A value
looks like a secret if it has a format, contains a password (a URL, a connection string), or is
random: letters and digits mixed within words, twelve characters or more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

__all__ = [
    "FORMATS",
    "LITERALS",
    "LONG_NAMES",
    "SHORT_NAMES",
    "Found",
    "Span",
    "looks_like_a_secret",
    "names_a_secret",
    "secret_parts",
    "span_at",
    "text_pattern",
]

Span: TypeAlias = tuple[int, int]
"""Start and end of a secret."""
Found: TypeAlias = tuple[Sequence[Span], int]
"""Secrets, and the place before which the same literal finds no other."""

FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic-key": ("sk-ant-", r"[\w\-]{16,}"),
    "openai-key": ("sk-", r"[\w\-]{16,}"),
    "github-token": ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w{20,}"),
    "gitlab-token": ("glpat-", r"[\w\-]{10,}"),
    "slack-token": ("xox xapp", r"[a-z]?-[\w\-]{8,}"),
    "aws-key-id": ("AKIA ASIA", r"[A-Z0-9]{16,}"),
    "google-key": ("AIza", r"[\w\-]{20,}"),
    "google-oauth": ("ya29. GOCSPX-", r"[\w\-]{16,}"),
    "stripe-key": ("sk_live_ sk_test_ rk_live_ rk_test_ whsec_", r"[A-Za-z0-9]{16,}"),
    "huggingface-token": ("hf_", r"[A-Za-z0-9]{20,}"),
    "npm-token": ("npm_", r"[A-Za-z0-9]{20,}"),
    "pypi-token": ("pypi-", r"[\w\-]{40,}"),
    "shopify-token": ("shpat_", r"\w{16,}"),
    "linear-key": ("lin_api_", r"\w{16,}"),
    "sendgrid-key": ("SG.", r"[\w\-]{16,}\.[\w\-]{16,}"),
    "digitalocean-token": ("dop_v1_", r"\w{16,}"),
    "jwt": ("eyJ", r"[\w\-]{8,}\.[\w\-]{4,}(?:\.[\w\-]*)?"),
}
"""Keys by their beginnings, and the pattern of what follows, for RE2 and `re`. No letter or digit
is before a key."""
_ESCAPE: Final = (
    r"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|[%=][0-9a-fA-F]{2}|\[[0-9;]*[A-Za-z])"
)
"""Ends in a letter or digit that is before the key and no part of its word: escapes of JSON, URLs
and MIME, and terminal colours (escaped or not)."""

KEY_NAME: Final = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_NO_END: Final = r'(?:[^"\\E -]|\\[^"]|E[^"\\N-]|EN[^"\\D-])'
PRIVATE_KEY: Final = (
    rf"-{{4,5}} ?BEGIN {KEY_NAME}"
    rf'(?:[^"\\-]|\\[^"]|-{{1,3}}(?:[^"\\-]|\\[^"])|-{{4,}} ?{_NO_END})*'
    rf"(?:-{{4,5}} ?END {KEY_NAME})?"
)
"""A key without its end goes on to the end of the text or of the JSON string."""
URL_PASSWORD: Final = r"""://[^\s:/?#@"\\]*:(?P<secret>[^\s/"'<>\\]{3,})@"""
_CONTEXTS: Final[Mapping[bytes, str]] = {
    b"-----BEGIN ": PRIVATE_KEY,
    b"---- BEGIN ": PRIVATE_KEY,
    b"://": rf'{URL_PASSWORD}|://([^\s/?#@"\\]{{1,400}})@',
    b"curl ": r"""curl (?:[^"\\\n;|]|\\\\\\n|\\[^n]){0,300}?(?<= )"""
    r"""(?:-u|-U|--user|--proxy-user)[ =]?(\\"|')?[^\s:"'\\]{1,100}:"""
    r"""((?(1)[^"'\\]+|[^\s"'\\]+))""",
    b'"-u"': r'"-u"\s*,\s*"[^":\\]{1,100}:(?!\d+")([^"\\]{1,200})"',
    b'"--user"': r'"--user"\s*,\s*"[^":\\]{1,100}:(?!\d+")([^"\\]{1,200})"',
    b"earer ": r"earer +((?=[\w.~+/-]*[\d=])[\w.~+/=-]{8,})",
    b"asic ": r"asic +((?=[\w.~+/-]*[\d=])[\w.~+/=-]{8,})",
}
"""Other secrets by a literal in the text around them, in text or in JSON: patterns match no quotes
and no lone backslashes, so that masked JSON stays valid. Of the groups that match, the last is the
secret."""
_KEYS: Final[Mapping[bytes, str]] = {
    literal.encode(): re.escape(literal) + rest
    for literals, rest in FORMATS.values()
    for literal in literals.split()
}
_BEGINNINGS: Final = tuple(literal.decode() for literal in _KEYS)
LITERALS: Final = (*_KEYS, *_CONTEXTS)
"""What is searched for, for `span_at`."""

LONG_NAMES: Final = (
    *("token", "secret", "password", "passwd", "passphrase", "passcode", "credential"),
    *("authorization", "authentication", "cookie", "webhook", "signature", "bearer"),
)
"""Words for secrets. In the text of a trace they are found in any name."""
SHORT_NAMES: Final = (
    *("key", "keys", "apikey", "auth", "jwt", "creds", "pwd", "pat", "otp", "dsn", "pass"),
    *("salt", "pin"),
)
"""Words for secrets that are also parts of other words."""
_SECRET_WORDS: Final = frozenset([*LONG_NAMES, *(f"{name}s" for name in LONG_NAMES), *SHORT_NAMES])
# Patterns are compiled when they are used first: all together would take 1.5 ms of a start.
_WORDS: Final = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_SUFFIX: Final = (
    r"(?i)(?:pass(?:word|wd|phrase|code)?|secret|token|credentials?|auth|key)s?[_-]?[0-9]*$"
)
"""For names without word boundaries: `PGPASSWORD`, `githubtoken`."""
_METADATA_WORDS: Final = frozenset(
    [
        *("file", "path", "dir", "directory", "url", "uri", "host", "port", "name", "mode"),
        *("type", "kind", "limit", "timeout", "ttl", "size", "length", "count", "max", "min"),
        *("enabled", "provider", "algorithm", "alg", "method", "header", "issuer", "audience"),
        *("region", "user", "username", "sock", "socket", "pid", "id", "version", "format"),
        *("store", "backend"),
    ]
)
_TOKEN_COUNT_WORDS: Final = frozenset(
    [
        *("max", "min", "num", "limit", "count", "budget", "context", "input", "output"),
        *("total", "per", "used", "completion", "prompt", "thought", "cached"),
    ]
)
"""With one of these in the name, `tokens` means language-model tokens."""
_HARMLESS: Final = frozenset({"PWD", "OLDPWD", "idempotencyKey"})

_HEX: Final = r"[0-9a-fA-F-]{32,}"
_AUTHORIZATION_SCHEME: Final = r"(?i)(?:bearer|basic|token)\s+(\S+)\s*"
"""Value of an `Authorization` header."""
_USER_INFO: Final = r"://([^/?#\s@]+)@"
_PARAMETER: Final = r"(?:^|[?&;,\s])([\w-]+)\s*=\s*([^&;,\s]+)"
_SEPARATORS: Final = r"[-_./:@,+=~]+"
_MIXED: Final = r"[A-Za-z][0-9]+[A-Za-z]"
_PATH_OR_URL: Final = r"[./~]|[a-zA-Z][\w+.-]*://|[A-Za-z]:\\"
_MIN_RANDOM_LENGTH: Final = 12
_LONG_WORD: Final = 16
_BASE64: Final = r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9+/]{32,}={0,2}"


def text_pattern(name: str) -> str:
    """A pattern of RE2 for a format; its group `secret` is the secret."""
    literals, rest = FORMATS[name]
    begins = "|".join(map(re.escape, literals.split()))
    return rf"(?:\b|_|{_ESCAPE})(?P<secret>(?:{begins}){rest})"


def span_at(data: bytes, at: int, literal: bytes) -> Found:
    """The secret that begins with one of `LITERALS` at this place, if there is one.

    A literal is not looked at again where an earlier one has decided: `eyJ-eyJ-…` would take time
    with the square of its length.
    """
    is_key = literal in _KEYS
    if is_key and _continues_word(data, at):
        return (), at
    found = _compiled(literal).match(data, at)
    if found is None:
        return (), _run_end(data, at) if literal == b"eyJ" else at
    until = at
    if is_key:
        until = min(found.end(), _run_end(data, at))
    elif literal.endswith(b"BEGIN "):
        until = found.end()
    return (found.span(found.lastindex or 0),), until


@cache
def _compiled(literal: bytes) -> re.Pattern[bytes]:
    return re.compile((_KEYS.get(literal) or _CONTEXTS[literal]).encode())


def _run_end(data: bytes, at: int) -> int:
    run = re.compile(rb"[\w-]*").match(data, at)
    return at if run is None else run.end()


def _continues_word(data: bytes, at: int) -> bool:
    """Whether a letter or digit is before this place that is not the end of an escape."""
    before = data[at - 1 : at]
    return (
        before.isalnum()
        and re.search(rb"%b\Z" % _ESCAPE.encode(), data[max(0, at - 12) : at]) is None
    )


def names_a_secret(name: str) -> bool:
    """Whether a variable, option or header is named like a secret: `API_KEY`, `token`."""
    if name in _HARMLESS:
        return False
    words = [word.lower() for word in re.findall(_WORDS, name)]
    while words and words[-1].isdigit():
        words.pop()
    if words and words[-1] in _METADATA_WORDS:
        return False
    found = _SECRET_WORDS.intersection(words)
    if found == {"tokens"} and not _TOKEN_COUNT_WORDS.isdisjoint(words):
        return False
    return bool(found) or (bool(re.search(_SUFFIX, name)) and "tokens" not in words)


def looks_like_a_secret(value: str) -> bool:
    """Whether a value looks like a secret, under any name."""
    value = value.strip()
    is_key = len(value) >= _MIN_RANDOM_LENGTH and value.startswith(_BEGINNINGS)
    return is_key or "-----BEGIN " in value or bool(_passwords(value)) or _is_random(value)


def secret_parts(name: str, value: str) -> list[str]:
    """The strings to mask for a named value: the value and the passwords in it, or none."""
    if not (names_a_secret(name) or looks_like_a_secret(value)):
        return []
    return [value, *_passwords(value)]


def _passwords(value: str) -> list[str]:
    """The passwords in a header, a URL or a connection string."""
    scheme = re.fullmatch(_AUTHORIZATION_SCHEME, value)
    found = [scheme[1]] if scheme else []
    for userinfo in re.findall(_USER_INFO, value):
        found.append(userinfo.partition(":")[2] or userinfo)
    for name, each in re.findall(_PARAMETER, value):
        if names_a_secret(name):
            found.append(each)
    return found


def _is_random(value: str) -> bool:
    if len(value) < _MIN_RANDOM_LENGTH or re.match(_PATH_OR_URL, value) or not value.isascii():
        return False
    if any(char.isspace() for char in value):
        return False
    if re.fullmatch(_HEX, value) or re.fullmatch(_BASE64, value):
        return True
    words = [word for word in re.split(_SEPARATORS, value) if word]
    if any(len(word) >= _LONG_WORD and _has_both(word) for word in words):
        return True
    return 2 * sum(bool(re.search(_MIXED, word)) for word in words) > len(words)


def _has_both(word: str) -> bool:
    return any(map(str.isdigit, word)) and any(map(str.isalpha, word))
