"""The public modules, which docs/api.md lists, and their names as griffe reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import griffe

from support.doc_snippets import ROOT

PAGE: Final = (ROOT / "docs" / "api.md").read_text()
MODULES: Final = tuple(re.findall(r"^::: (conductor\S*)", PAGE, re.MULTILINE))


@cache
def _package() -> griffe.Object:
    found = griffe.load("conductor", search_paths=[ROOT], allow_inspection=False)
    assert isinstance(found, griffe.Object)
    return found


def public_names(module: str) -> Iterator[tuple[str, griffe.Object | griffe.Alias]]:
    """The names in `__all__` of a module, and what they are."""
    where = _package()
    for part in module.split(".")[1:]:
        where = where.members[part]  # type: ignore[assignment]
    for name in sorted(map(str, where.exports or ())):
        found = where.members[name]
        yield name, found.final_target if found.is_alias else found  # type: ignore[union-attr]


def signatures(found: griffe.Object | griffe.Alias) -> list[str]:
    """How a function is called, or what an attribute is; of overloads, each."""
    if found.is_class:
        bases = ", ".join(str(each) for each in found.bases)  # type: ignore[union-attr]
        return [f"class {found.name}({bases})" if bases else f"class {found.name}"]
    if found.is_function:
        forms = found.overloads or [found]  # type: ignore[union-attr]
        mark = "async " if "async" in found.labels else ""
        return [f"{mark}{each.signature(return_type=True)}" for each in forms]
    value = getattr(found, "value", None)
    shown = f" = {value}" if re.fullmatch(r"-?\d+|'.*'", str(value)) else ""
    return [f"{found.name}: {found.annotation}{shown}"]  # type: ignore[union-attr]
