"""ACP types and methods, generated from the official schemas.

- `conductor.schema.v1`, `conductor.schema.v2`: an attrs class for every type. Types that are the
  same in both versions are the same classes.
- `conductor.schema.convert`: `structure`, `unstructure` and `dumps` convert between JSON and
  these classes.
- this module: the tables of methods by name. Importing this package imports no types; the functions
  that return types import them when called.

`generate` writes the modules of types and methods from the pinned schemas in `data/`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from conductor.schema.base import Method, Object, members_of
from conductor.schema.methods import V1, V2

__all__ = [
    "METHODS",
    "METHODS_BY_VERSION",
    "Method",
    "notification_type",
    "params_type",
    "result_type",
    "similar_methods",
]

METHODS_BY_VERSION: Mapping[int, Mapping[str, Method]] = MappingProxyType(
    {1: MappingProxyType(V1), 2: MappingProxyType(V2)}
)
METHODS: Mapping[str, Method] = MappingProxyType(V2 | V1)
"""The methods of all versions. A method has the same meaning in both, but its types may have other
names: `METHODS_BY_VERSION` has these."""


def similar_methods(name: str) -> list[str]:
    """Return known methods with a name similar to `name`, the most similar first."""
    import difflib

    return difflib.get_close_matches(name, METHODS, n=3)


def params_type(name: str, version: int = 1) -> Any:
    """The class (or union) of a method's params; the request's, if there is one of this name."""
    return _type(METHODS_BY_VERSION[version][name].params, version)


def notification_type(name: str, version: int = 1) -> Any:
    """The class of the params of the notification of this name."""
    method = METHODS_BY_VERSION[version][name]
    return _type(method.notification or method.params, version)


def result_type(name: str, version: int = 1) -> Any:
    """The class (or union) of a method's result; None for a notification."""
    result = METHODS_BY_VERSION[version][name].result
    return None if result is None else _type(result, version)


@lru_cache(maxsize=256)
def needed_result(method: str, version: int) -> str | None:
    """The name of the type of a request's result, if it has required members: `null` is no valid
    result of the request."""
    described = METHODS_BY_VERSION[2 if version == 2 else 1].get(method)
    if described is None or described.result is None:
        return None
    result = _type(described.result, 2 if version == 2 else 1)
    is_needed = isinstance(result, type) and any(m.is_required for m in members_of(result))
    return described.result if is_needed else None


def client_capability_paths() -> frozenset[str]:
    """Dotted paths of the capabilities that a client can announce in any version, `fs` and
    `fs.writeTextFile`; without those of `_meta`, in which any are possible."""
    types = [_type("ClientCapabilities", version) for version in METHODS_BY_VERSION]
    return frozenset(path for cls in types for path in _paths(cls, ""))


def _paths(cls: Any, above: str) -> Iterator[str]:
    for member in members_of(cls):
        if member.name != "meta":
            yield above + member.wire
            if isinstance(member.type, type) and issubclass(member.type, Object):
                yield from _paths(member.type, f"{above}{member.wire}.")


def _type(name: str, version: int) -> Any:
    return getattr(importlib.import_module(f"conductor.schema.v{version}"), name)
