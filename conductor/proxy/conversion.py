"""Between raw JSON and what a handler works with: a schema type, a `dict`, or the bytes.

Plain params keep what JSON can say and Python's floats cannot: `1e400`, `1.10` and integers of any
size are written back as they were read, lone surrogates too, members in their order. Only duplicate
members, white space and the choice of escapes are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from conductor.jsonrpc.messages import INVALID_PARAMS, encode_error
from conductor.schema import METHODS_BY_VERSION, result_type
from conductor.schema._values import literal_float
from conductor.schema.base import Object
from conductor.schema.convert import decode, dumps, structure, unstructure

__all__ = [
    "decode_answer",
    "decode_params",
    "decode_result",
    "encode",
    "invalid_params",
    "message_reader",
]

_decode = msgspec.json.Decoder(float_hook=literal_float).decode
_DECODE_ERRORS: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_CONTAINERS: Final = frozenset({dict, list, tuple})
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def decode_params(raw: bytes | None, annotation: Any) -> Any:
    """A payload as `annotation` asks for it. Raises `ValueError` when it does not fit."""
    if annotation is dict or annotation is Any:
        return decode(raw) if raw is not None else {}
    if annotation is bytes:
        return raw if raw is not None else b"{}"
    return structure(raw if raw is not None else b"{}", annotation)


def message_reader(annotation: Any) -> Callable[[bytes | None], Any]:
    """What gives a handler its message. It raises `ValueError` for params that do not fit."""
    if annotation is dict:
        return _read_params
    return lambda raw: decode_params(raw, annotation)


def _read_params(raw: bytes | None) -> Any:
    """What most handlers begin with. `decode` takes twice as long; the unusual is left to it."""
    if raw is None:
        return {}
    if raw.find(b"-0") >= 0:  # `in` tries a number first, and makes an exception of that
        value = decode(raw)
    else:
        try:
            value = _decode(raw)
        except _DECODE_ERRORS:
            value = decode(raw)
    if type(value) is not dict:
        raise ValueError("expected an object")
    return value


def decode_result(raw: bytes | None, annotation: Any) -> Any:
    """A result as `annotation` asks for it; `None` when it is null or there is none."""
    if raw is None or raw == b"null":
        return None
    return decode_params(raw, annotation)


def decode_answer(raw: bytes | None, method: str, annotation: Any) -> Any:
    """The answer to a message that a handler passed on, typed as the message was.

    A handler with types of one protocol version also meets chains of the other, whose messages it
    often fits; an answer that then has the other version's shape is given as that, or else plain.
    """
    try:
        return decode_result(raw, annotation)
    except ValueError:
        if annotation is dict or annotation is bytes:
            raise
        other = 1 if annotation.__module__.endswith("v2") else 2
        if METHODS_BY_VERSION[other].get(method) is None:
            raise
    try:
        return decode_result(raw, result_type(method, other))
    except ValueError:
        return decode_result(raw, dict)


def encode(value: Any) -> bytes | None:
    """What a handler made as raw JSON; `None` (absent) for `None`. Schema objects may stand
    anywhere in it. Raises `TypeError` for what is no JSON."""
    if value is None:
        return None
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind in _CONTAINERS and _has_objects(value):
        value = _without_objects(value)
    return dumps(value)


def _has_objects(value: Any) -> bool:
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is str:
            continue
        if kind in _CONTAINERS:
            if _has_objects(item):
                return True
        elif kind not in _SCALARS and isinstance(item, Object):
            return True
    return False


def _without_objects(value: Any) -> Any:
    """The same without schema objects: msgspec would write them as it writes any attrs object."""
    if type(value) is dict:
        return {key: _without_objects(item) for key, item in value.items()}
    if type(value) in _CONTAINERS:
        return [_without_objects(item) for item in value]
    return unstructure(value) if isinstance(value, Object) else value


def invalid_params(method: str, problem: ValueError) -> bytes:
    """The error for params that do not fit the type that a handler asks for."""
    return encode_error(INVALID_PARAMS, f"Invalid params for {method}: {problem}")
