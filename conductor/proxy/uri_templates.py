"""Variables of a URI template (RFC 6570), for the check of `@resource` at import.

The MCP SDK, which matches URIs, has a parser of its own, but its import takes half a second.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["UriTemplateError", "template_variables"]

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\*?)")


class UriTemplateError(ValueError):
    """An invalid template; the text is the reason."""


def template_variables(template: str) -> dict[str, bool]:
    """Return the variables in order, each with whether it is in the query (`{?name}`), so that a
    URI may lack it. Raises `UriTemplateError`."""
    variables: dict[str, bool] = {}
    rest = _EXPRESSION.sub("", template)
    if "{" in rest or "}" in rest:
        raise UriTemplateError("unbalanced braces")
    for expression in _EXPRESSION.findall(template):
        operator = expression[:1] if expression[:1] in tuple("+#./;?&") else ""
        for each in expression[len(operator) :].split(","):
            found = _VARIABLE.fullmatch(each)
            if found is None or (found[2] and operator not in ("/", ".", ";")):
                raise UriTemplateError(f"{each!r} is not a variable that a URI can be matched with")
            if found[1] in variables:
                raise UriTemplateError(f"{found[1]!r} occurs twice")
            variables[found[1]] = operator in ("?", "&")
    return variables
