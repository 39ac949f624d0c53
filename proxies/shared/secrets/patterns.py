"""Patterns of secrets: the default ones, those of chain files, and values of environment
variables."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Final

from proxies.shared.regex import compile_pattern
from proxies.shared.secrets.private_keys import BODY, HEADER

__all__ = ["PATTERNS", "check_patterns", "environment_values"]

# Start of a word, without lookbehind, which RE2 lacks. `\b` does not match after an underscore, nor
# after escapes of JSON, URLs and MIME and terminal colours (escaped or not), which end in a letter
# or digit.
_START: Final = (
    r"(?:\b|_|\\[nrtbf]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|[%=][0-9a-fA-F]{2}"
    r"|\[[0-9;]*[A-Za-z])"
)

PATTERNS: Final[Mapping[str, str]] = {
    "private-key": HEADER,
    "key-body": BODY,
    "anthropic-key": _START + r"(?P<secret>sk-ant-[A-Za-z0-9_\-]{20,})",
    "openai-key": _START + r"(?P<secret>sk-(?:proj-|svcacct-)?[A-Za-z0-9_\-]{20,})",
    "github-token": _START + r"(?P<secret>gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})",
    "gitlab-token": _START + r"(?P<secret>glpat-[A-Za-z0-9_\-]{20,})",
    "slack-token": _START + r"(?P<secret>(?:xox[a-z]|xapp)-[A-Za-z0-9\-]{10,})",
    "aws-key-id": _START + r"(?P<secret>(?:AKIA|ASIA)[A-Z0-9]{16})(?:[^A-Za-z0-9]|\z)",
    "google-key": _START + r"(?P<secret>AIza[A-Za-z0-9_\-]{35})",
    "google-oauth": _START + r"(?P<secret>(?:ya29\.|GOCSPX-)[A-Za-z0-9_\-]{20,})",
    "stripe-key": _START + r"(?P<secret>(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{20,})",
    "huggingface-token": _START + r"(?P<secret>hf_[A-Za-z0-9]{30,})",
    "npm-token": _START + r"(?P<secret>npm_[A-Za-z0-9]{36,})",
    "pypi-token": _START + r"(?P<secret>pypi-[A-Za-z0-9_\-]{50,})",
    "jwt": _START
    + r"(?P<secret>eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,})",
    "url-password": r"""://[^\s:/@]*:[^\s/"'<>]{3,}@""",
}
"""Default patterns. The secret is the group `secret`, or else the whole match."""


def check_patterns(patterns: Mapping[str, str]) -> None:
    """Raise `ValueError` for an invalid pattern, or one that matches the empty text."""
    for name, pattern in patterns.items():
        try:
            compiled = compile_pattern(pattern)
        except ValueError as exc:
            raise ValueError(f"`{name}` is {exc}") from None
        if compiled.fullmatch(""):
            raise ValueError(f"`{name}` matches everywhere: it matches the empty text")


def environment_values(
    globs: Sequence[str], environ: Mapping[str, str], shortest: int
) -> dict[str, str]:
    """Return the values of variables with matching names, by name, without short values."""
    return {
        name: value
        for name, value in environ.items()
        if len(value) >= shortest and any(fnmatch.fnmatchcase(name, glob) for glob in globs)
    }
