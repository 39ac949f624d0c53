"""Conversion between raw JSON and the values that handlers use: schema types, `dict`, or `bytes`.

A `dict` preserves JSON that Python's floats cannot represent: `1e400`, `1.10` and integers of any
size are written back as they were read, and so are lone surrogates and the order of members. Lost
are only duplicate members, white space and the choice of escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from conductor.json_values import check_depth
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
    "encode_edited",
    "invalid_params",
    "message_reader",
]

_decode = msgspec.json.Decoder(float_hook=literal_float).decode
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_CONTAINERS: Final = frozenset({dict, list, tuple})
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_minus_zero: Final = re.compile(rb"-0")


def decode_params(raw: bytes | None, annotation: Any) -> Any:
    """Decode a payload to the type `annotation`. Raises `ValueError` if it does not fit."""
    if annotation is dict or annotation is Any:
        return decode(raw) if raw is not None else {}
    if annotation is bytes:
        return raw if raw is not None else b"{}"
    return structure(raw if raw is not None else b"{}", annotation)


def message_reader(annotation: Any) -> Callable[[bytes | None], Any]:
    """Return the function that decodes params to `annotation`; it raises `ValueError` if they do
    not fit."""
    if annotation is dict:
        return _read_params
    return lambda raw: decode_params(raw, annotation)


def _read_params(raw: bytes | None) -> Any:
    """Decode params to a `dict`: a fast path that takes half the time of `decode`, which handles
    the rare cases."""
    if raw is None:
        return {}
    # For 1 MiB: 10 µs if there is no `-`, else 270 µs; `find(b"-0")` takes 830 µs.
    if raw.find(b"-") >= 0 and _minus_zero.search(raw) is not None:
        value = decode(raw)
    else:
        try:
            value = _decode(raw)
        except _DECODE_ERRORS:
            value = decode(raw)
        else:
            check_depth(raw, value)
    if type(value) is not dict:
        raise ValueError("expected an object")
    return value


def decode_result(raw: bytes | None, annotation: Any) -> Any:
    """Decode a result to the type `annotation`; `None` if it is null or absent."""
    if raw is None or raw == b"null":
        return None
    return decode_params(raw, annotation)


def decode_answer(raw: bytes | None, method: str, annotation: Any) -> Any:
    """Decode the response to a message that a handler forwarded, typed as the message was.

    A handler with types of one protocol version may run in a chain of the other, and its types
    often fit. A response that does not fit `annotation` is decoded to the type of the other
    version, or else to plain JSON.
    """
    try:
        return decode_result(raw, annotation)
    except ValueError:
        if annotation is dict or annotation is bytes:
            raise
    other = 1 if annotation.__module__.endswith("v2") else 2
    if METHODS_BY_VERSION[other].get(method) is not None:
        with suppress(ValueError):
            return decode_result(raw, result_type(method, other))
    return decode_result(raw, dict)


def encode(value: Any) -> bytes | None:
    """Encode a value as raw JSON; `None` (absent) for `None`. Schema objects may be nested anywhere
    in it. Raises `TypeError` for values that are not JSON."""
    if value is None:
        return None
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind in _CONTAINERS and _has_objects(value):
        value = _without_objects(value)
    return dumps(value)


def encode_edited(
    raw: bytes | None, message: Any, read: Callable[[bytes | None], Any]
) -> bytes | None:
    """Encode a message that `read` has decoded from `raw`; return `raw` itself unless the message
    has been changed in place.

    Most peers write compact JSON, so that an unchanged message is encoded to the same bytes: 0.3 µs
    for 100 bytes. Otherwise `raw` is decoded and encoded once more, to compare.
    """
    if type(message) is bytes or dumps(message) == raw:
        return raw
    encoded = encode(message)
    return raw if encoded == encode(read(raw)) else encoded


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
    """Replace nested schema objects by plain values: msgspec would encode them as plain attrs
    objects, without the wire names."""
    if type(value) is dict:
        return {key: _without_objects(item) for key, item in value.items()}
    if type(value) in _CONTAINERS:
        return [_without_objects(item) for item in value]
    return unstructure(value) if isinstance(value, Object) else value


def invalid_params(method: str, problem: object, sender: str) -> bytes:
    """Return the raw error object for params that a handler cannot read."""
    return encode_error(
        INVALID_PARAMS, f"Invalid params for {method}: {problem} (sent by {sender})"
    )
