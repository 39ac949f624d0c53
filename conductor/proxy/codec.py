"""Between raw JSON and what a handler works with: a schema type, a `dict`, or the bytes."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec

from conductor.messages import INVALID_PARAMS, encode_error

__all__ = ["decode_params", "decode_result", "encode", "invalid_params"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def decode_params(raw: bytes | None, annotation: Any) -> Any:
    """A payload as `annotation` asks for it. Raises `ValueError` when it does not fit."""
    if annotation is bytes:
        return raw if raw is not None else b"{}"
    if attrs.has(annotation):
        from conductor.schema.convert import structure

        return structure(raw if raw is not None else b"{}", annotation)
    if raw is None:
        return {}
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return json.loads(raw)  # lone surrogates, which msgspec refuses


def decode_result(raw: bytes | None, annotation: Any) -> Any:
    """A result as `annotation` asks for it; `None` when it is null or there is none."""
    if raw is None or raw == b"null":
        return None
    return decode_params(raw, annotation)


def encode(value: Any) -> bytes | None:
    """What a handler made as raw JSON; `None` (absent) for `None`."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value
    if attrs.has(type(value)):
        from conductor.schema.convert import dumps

        return dumps(value)
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError):
        return json.dumps(value, separators=(",", ":")).encode()


def invalid_params(method: str, problem: ValueError) -> bytes:
    """The error for params that do not fit the type that a handler asks for."""
    return encode_error(INVALID_PARAMS, f"Invalid params for {method}: {problem}")
