"""Between raw JSON and what a handler works with: a schema type, a `dict`, or the bytes.

Plain params keep what JSON can say and Python's floats cannot: `1e400`, `1.10` and integers of any
size are written back as they were read, lone surrogates too, members in their order. Only duplicate
members, white space and the choice of escapes are lost.
"""

from __future__ import annotations

from typing import Any

from conductor.messages import INVALID_PARAMS, encode_error
from conductor.schema.base import Object
from conductor.schema.convert import decode, dumps, structure

__all__ = ["decode_params", "decode_result", "encode", "invalid_params"]


def decode_params(raw: bytes | None, annotation: Any) -> Any:
    """A payload as `annotation` asks for it. Raises `ValueError` when it does not fit."""
    if annotation is dict:
        return decode(raw) if raw is not None else {}
    if annotation is bytes:
        return raw if raw is not None else b"{}"
    if isinstance(annotation, type) and issubclass(annotation, Object):
        return structure(raw if raw is not None else b"{}", annotation)
    return decode(raw) if raw is not None else {}


def decode_result(raw: bytes | None, annotation: Any) -> Any:
    """A result as `annotation` asks for it; `None` when it is null or there is none."""
    if raw is None or raw == b"null":
        return None
    return decode_params(raw, annotation)


def encode(value: Any) -> bytes | None:
    """What a handler made as raw JSON; `None` (absent) for `None`. Schema objects may stand
    anywhere in it. Raises `TypeError` for what is no JSON."""
    if value is None:
        return None
    if type(value) is bytes:
        return value
    return dumps(value)


def invalid_params(method: str, problem: ValueError) -> bytes:
    """The error for params that do not fit the type that a handler asks for."""
    return encode_error(INVALID_PARAMS, f"Invalid params for {method}: {problem}")
