"""Expansion of `${VAR}`, `${VAR:-default}` and `$$` in strings.

As in a shell, the default applies if the variable is unset or empty. Any other `$` is a literal
dollar sign. Defaults are literal text: references do not nest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["BadReference", "ExpandedString", "expand", "find_references"]

# Patterns are compiled when they are used first.
_REFERENCE = r"\$\$|\$\{([^}]*)(\}?)"
_BODY = r"(?s)([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?"


class BadReference(msgspec.Struct, frozen=True):
    """A malformed reference or an unset variable; `number` is its index among the references."""

    number: int
    message: str
    help: str | None


class ExpandedString(msgspec.Struct, frozen=True):
    """An expanded string; `values` are the non-empty values of the variables `names`."""

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]
    referred: bool
    bad: tuple[BadReference, ...]


def expand(text: str, environ: Mapping[str, str]) -> ExpandedString:
    """Expand the references of a string; a bad one becomes the empty string and goes to `bad`."""
    if "$" not in text:
        return ExpandedString(text, (), (), False, ())
    parts: list[str] = []
    values: list[str] = []
    names: list[str] = []
    bad: list[BadReference] = []
    end = 0
    found = list(re.finditer(_REFERENCE, text))
    for number, reference in enumerate(found):
        parts.append(text[end : reference.start()])
        end = reference.end()
        if reference[0] == "$$":
            parts.append("$")
            continue
        body = re.fullmatch(_BODY, reference[1])
        if not reference[2] or not body or "${" in reference[1]:
            bad.append(_malformed(number, reference))
            continue
        name, default = body[1], body[2]
        value = environ.get(name)
        if value is not None and (value or default is None):
            parts.append(value)
            if value:
                values.append(value)
                names.append(name)
        elif default is not None:
            parts.append(default)
        else:
            bad.append(_unset(number, name, environ))
    parts.append(text[end:])
    referred = any(reference[0] != "$$" for reference in found)
    return ExpandedString("".join(parts), tuple(values), tuple(names), referred, tuple(bad))


def find_references(raw: str) -> list[tuple[int, int]]:
    """Start and end of every reference in source text, in order."""
    return [found.span() for found in re.finditer(_REFERENCE, raw)]


def _malformed(number: int, reference: re.Match[str]) -> BadReference:
    if not reference[2]:
        message = "this `${` is never closed"
    elif "${" in reference[1]:
        message = "a default cannot refer to another variable"
    else:
        message = "this is not a reference to an environment variable"
    form = "write `${VAR}`, `${VAR:-default}`, or `$${` for the characters themselves"
    return BadReference(number, message, form)


def _unset(number: int, name: str, environ: Mapping[str, str]) -> BadReference:
    from conductor.chainfile.diagnostics import closest_match

    meant = closest_match(name, environ)
    hint = f"set it, or give it a default: `${{{name}:-…}}`"
    return BadReference(
        number,
        f"the environment variable `{name}` is not set",
        f"did you mean `{meant}`? Otherwise {hint}" if meant else hint,
    )
