"""ACP types and methods, generated from the official schemas.

- `conductor.schema.v1`, `conductor.schema.v2`: an attrs class for every type.
- `conductor.schema.convert`: `structure`, `unstructure` and `dumps` convert between JSON and
  these classes.
- this module: the tables of methods by name. Importing this package imports no types; the functions
  that return types import them when called.

`generate` writes the modules of types and methods from the pinned schemas in `data/`. May import
only `conductor.errors` and `conductor.limits`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from conductor.schema._method import Method
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


def _type(name: str, version: int) -> Any:
    return getattr(importlib.import_module(f"conductor.schema.v{version}"), name)
