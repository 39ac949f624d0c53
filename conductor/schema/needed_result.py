"""Results with members that must not be missing: `null` is not a valid result of these requests."""

from __future__ import annotations

import importlib
from functools import lru_cache

import attrs

from conductor.schema import methods

__all__ = ["needed_result"]


@lru_cache(maxsize=256)
def needed_result(method: str, version: int) -> str | None:
    """The name of the type of a request's result, if it has required members.

    Imports the types of that version, and so is for results that may be wrong.
    """
    described = (methods.V2 if version == 2 else methods.V1).get(method)
    if described is None or described.result is None:
        return None
    types = importlib.import_module(f"conductor.schema.v{2 if version == 2 else 1}")
    result = getattr(types, described.result, None)
    if result is None or not attrs.has(result):
        return None
    needed = any(field.default is attrs.NOTHING for field in attrs.fields(result) if field.init)
    return described.result if needed else None
