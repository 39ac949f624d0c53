"""`${VAR}`, `${VAR:-default}` and `$$` in strings.

As in a shell, `:-` stands in for a variable that is unset or empty. A `$` that begins none of
these is a dollar sign. A default is taken as it is: there are no references in references.

Plain classes, because programs start before msgspec is imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["BadReference", "Expanded", "expand", "find_references"]

_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class BadReference:
    """A reference that has no value: `number` counts the references of the string from 0."""

    __slots__ = ("help", "message", "number")

    def __init__(self, number: int, message: str, help: str | None) -> None:
        self.number = number
        self.message = message
        self.help = help


class Expanded:
    """A string with its references replaced. `values` came from the environment, by `names`."""

    __slots__ = ("bad", "names", "referred", "text", "values")

    def __init__(
        self,
        text: str,
        values: tuple[str, ...],
        names: tuple[str, ...],
        referred: bool,
        bad: tuple[BadReference, ...],
    ) -> None:
        self.text = text
        self.values = values
        self.names = names
        self.referred = referred
        self.bad = bad


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Replace the references of a string; one without a value is replaced by nothing."""
    parts: list[str] = []
    values: list[str] = []
    names: list[str] = []
    bad: list[BadReference] = []
    end = 0
    found = list(_REFERENCE.finditer(text))
    for number, reference in enumerate(found):
        parts.append(text[end : reference.start()])
        end = reference.end()
        if reference[0] == "$$":
            parts.append("$")
            continue
        body = _BODY.fullmatch(reference[1])
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
    return Expanded("".join(parts), tuple(values), tuple(names), referred, tuple(bad))


def find_references(raw: str) -> list[tuple[int, int]]:
    """Start and end of every reference in a piece of source text, in order."""
    return [found.span() for found in _REFERENCE.finditer(raw)]


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
