"""Detect secrets by the name or the form of a value. Pure.

A name is split into words (`GITHUB_TOKEN`, `apiKey`, `x-api-key`). It names a secret if one of them
is in `_SECRET_WORDS`, unless the last one marks metadata about a secret (`TOKEN_FILE`, `KEY_ID`). A
value looks like a secret if it has a known key format, contains a password (a URL, a connection
string), or is random: letters and digits mixed within words, twelve characters or more.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["looks_like_a_secret", "names_a_secret", "secret_parts"]

_WORDS: Final = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_SECRET_WORDS: Final = frozenset(
    [
        "password",
        "passwords",
        "passwd",
        "pwd",
        "passphrase",
        "passcode",
        "pass",
        "secret",
        "secrets",
        "token",
        "tokens",
        "credential",
        "credentials",
        "creds",
        "auth",
        "authorization",
        "authentication",
        "key",
        "keys",
        "apikey",
        "pat",
        "jwt",
        "bearer",
        "cookie",
        "cookies",
        "dsn",
        "pin",
        "otp",
        "salt",
        "signature",
        "webhook",
    ]
)
# Patterns are compiled when they are used first: all together would take 1.5 ms of a start.
_SUFFIX: Final = (
    r"(?i)(?:pass(?:word|wd|phrase|code)?|secret|token|credentials?|auth|key)s?[_-]?[0-9]*$"
)
"""For names without word boundaries: `PGPASSWORD`, `githubtoken`."""
_METADATA_WORDS: Final = frozenset(
    [
        "file",
        "path",
        "dir",
        "directory",
        "url",
        "uri",
        "host",
        "port",
        "name",
        "mode",
        "type",
        "kind",
        "limit",
        "timeout",
        "ttl",
        "size",
        "length",
        "count",
        "max",
        "min",
        "enabled",
        "provider",
        "algorithm",
        "alg",
        "method",
        "header",
        "issuer",
        "audience",
        "region",
        "user",
        "username",
        "sock",
        "socket",
        "pid",
        "id",
        "version",
        "format",
        "store",
        "backend",
    ]
)
_TOKEN_COUNT_WORDS: Final = frozenset(
    [
        "max",
        "min",
        "num",
        "limit",
        "count",
        "budget",
        "context",
        "input",
        "output",
        "total",
        "per",
        "used",
        "completion",
        "prompt",
        "thought",
        "cached",
    ]
)
"""With one of these in the name, `tokens` means language-model tokens."""
_HARMLESS: Final = frozenset({"PWD", "OLDPWD", "idempotencyKey"})

_KNOWN_KEY_FORMAT: Final = (
    r"(?i)-----BEGIN "
    r"|^(?:sk|pk|rk|gh[a-z]|xox[a-z]|glpat|hf|npm|pypi|whsec|shpat|lin_api|dop_v1)[-_]\S{8,}"
    r"|^github_pat_|^A[KS]IA[0-9A-Z]{12,}|^AIza[\w-]{20,}|^ya29\.|^eyJ[\w-]{8,}"
    r"|^[0-9a-fA-F-]{32,}$"
)
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
    return bool(re.search(_KNOWN_KEY_FORMAT, value)) or bool(_passwords(value)) or _is_random(value)


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
    if re.fullmatch(_BASE64, value):
        return True
    words = [word for word in re.split(_SEPARATORS, value) if word]
    if any(len(word) >= _LONG_WORD and _has_both(word) for word in words):
        return True
    return 2 * sum(bool(re.search(_MIXED, word)) for word in words) > len(words)


def _has_both(word: str) -> bool:
    return any(map(str.isdigit, word)) and any(map(str.isalpha, word))
