"""Descriptions of a class's attributes, read from docstrings.

Two forms are read: a string below an attribute, as documentation tools have it, and the list below
`Options:` in the docstring of a class or of its module:

    Options:
        files    paths, relative to the session's directory;
                 more lines are indented deeper
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

__all__ = ["attribute_docstrings", "option_docstrings"]

_HEAD: Final = re.compile(r"^( *)Options:\n", re.MULTILINE)
_OPTION: Final = re.compile(r"( +)(\w+) {2,}(\S.*)")


def attribute_docstrings(cls: type) -> dict[str, str]:
    """The strings below the attributes of a class and its bases, each as one line.

    Empty where there is no source to read.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _own_docstrings(base)
    return found


@lru_cache(maxsize=64)  # many classes have the same bases, and `getsource` parses a whole module
def _own_docstrings(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return found
    body = getattr(tree, "body", [])
    for above, below in pairwise(body):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name):
            match below:
                case ast.Expr(ast.Constant(str(text))):
                    found[above.target.id] = " ".join(text.split())
    return found


def option_docstrings(cls: type) -> dict[str, str]:
    """Descriptions by option, from `Options:` in the docstrings of the module and the class."""
    module: Any = sys.modules.get(cls.__module__)
    # Other classes of the module have other options.
    docs = [getattr(module, "__doc__", None), cls.__doc__]
    found: dict[str, str] = {}
    for doc in docs:
        found |= _options(inspect.cleandoc(doc or ""))
    return found


def _options(doc: str) -> dict[str, str]:
    head = _HEAD.search(doc)
    if not head:
        return {}
    found: dict[str, str] = {}
    name, first = "", 0
    for line in doc[head.end() :].splitlines():
        depth = len(line) - len(line.lstrip())
        if not line.strip() or depth <= len(head[1]):
            break
        option = _OPTION.fullmatch(line)
        if option and (not name or len(option[1]) == first):
            first, name = len(option[1]), option[2]
            found[name] = option[3]
        elif option:  # a list within the text of an option
            found[name] += f"; `{option[2]}`: {option[3]}"
        elif name:
            found[name] += " " + line.strip()
    return found
