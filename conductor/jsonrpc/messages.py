"""JSON-RPC 2.0 messages: decoded envelopes, encoders, error codes.

Payloads (`params`, `result`, `error`) stay raw JSON from end to end, so a message that no proxy
handles keeps its bytes. The encoders return the pieces of one line; the write buffer joins them
once, or writes large ones unjoined.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.error_codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
)
from conductor.errors import (
    ConductorError,
    RequestCancelled,
    RequestError,
    describe,
    details_are_withheld,
)
from conductor.json_values import NestedTooDeeply, decode_loosely, decode_value
from conductor.secrets.masking import redact, redact_value

__all__ = [
    "CANCEL",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "ErrorObject",
    "Id",
    "Message",
    "Payload",
    "Pieces",
    "RawMember",
    "encode_error",
    "encode_id",
    "encode_lossy",
    "encode_method",
    "error_pieces",
    "error_to_exception",
    "exception_to_error",
    "internal_error",
    "notification_pieces",
    "request_pieces",
    "result_pieces",
    "truncate",
]

CANCEL: Final = "$/cancel_request"
"""The notification that cancels a request by its id on this connection (RFD cancellation)."""

Id: TypeAlias = int | str | None
"""A request id. `None` is JSON null, which is valid in a request (JSON-RPC 2.0 §4)."""

Payload: TypeAlias = Raw | bytes | memoryview
"""Raw JSON."""
RawMember: TypeAlias = Payload | None
"""Raw JSON of the `result` or `error` of a response; `None` for the one that it does not have."""

Pieces: TypeAlias = "tuple[bytes | Payload, ...]"
"""The parts of one line, in order, newline included."""


class Message(msgspec.Struct, gc=False, frozen=True):
    """One JSON-RPC message, decoded no further than its envelope.

    With a method it is a request (`id` set) or a notification; without, a response.
    """

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class ErrorObject(msgspec.Struct, gc=False, omit_defaults=True):
    """The `error` member of a response (JSON-RPC 2.0 §5.1)."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


_encoder = msgspec.json.Encoder()


def encode_id(id: Id) -> bytes:
    """An id as JSON, with its original type."""
    return b"%d" % id if type(id) is int else _encoder.encode(id)


def encode_method(method: str) -> bytes:
    """A method name as a JSON string."""
    return _encoder.encode(method)


def request_pieces(id: Id, method: str, params: Payload | None) -> Pieces:
    encoded = _encoder.encode(method)
    if type(id) is int:
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b' % (id, encoded)
    else:
        head = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (encode_id(id), encoded)
    return (head, b',"params":', params, b"}\n") if params is not None else (head, b"}\n")


def notification_pieces(method: str, params: Payload | None) -> Pieces:
    head = b'{"jsonrpc":"2.0","method":%b' % encode_method(method)
    return (head, b',"params":', params, b"}\n") if params is not None else (head, b"}\n")


def result_pieces(id: Id, result: Payload) -> Pieces:
    if type(id) is int:
        return (b'{"jsonrpc":"2.0","id":%d,"result":' % id, result, b"}\n")
    return (b'{"jsonrpc":"2.0","id":%b,"result":' % encode_id(id), result, b"}\n")


def error_pieces(id: Id, error: Payload) -> Pieces:
    return (b'{"jsonrpc":"2.0","id":%b,"error":' % encode_id(id), error, b"}\n")


def encode_error(code: int, message: str, data: Any = None) -> bytes:
    """A JSON-RPC error object; `None` leaves `data` out."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    try:
        return _encoder.encode(error)
    except (TypeError, ValueError, OverflowError):
        # Lone surrogates, integers over 64 bits, and non-JSON values from proxy code.
        try:
            return _dump_error(error)
        except ValueError:  # NaN, infinity, a reference cycle
            return _dump_error({**error, "data": repr(data)})


def encode_lossy(value: Any) -> bytes:
    """Encode a value of the conductor as JSON, with `?` in place of lone surrogates.

    File names and exception texts may contain them, and parsers of other languages refuse a whole
    message with an escaped one.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def truncate(text: str, limit: int) -> str:
    """`text`, or its first `limit - 1` characters and an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _dump_error(error: dict[str, Any]) -> bytes:
    return json.dumps(error, separators=(",", ":"), default=repr, allow_nan=False).encode()


def exception_to_error(exc: BaseException) -> bytes:
    """The JSON-RPC error object for an exception, without secrets. The only such conversion."""
    if isinstance(exc, RequestError):
        return encode_error(exc.code, exc.message, exc.data)
    if isinstance(exc, ConductorError):
        message, data = exc.public_details()
        return internal_error(redact(message), redact_value(data))
    is_withheld = details_are_withheld()
    message = "Internal error" if is_withheld else f"Internal error: {redact(describe(exc))}"
    return internal_error(message, type(exc).__name__)


def internal_error(message: str, data: Any) -> bytes:
    """An error object with code -32603, in JSON that every parser accepts."""
    return encode_lossy({"code": INTERNAL_ERROR, "message": message, "data": data})


def error_to_exception(error: Payload) -> RequestError:
    """The exception for the error object of a response that `codec` accepted."""
    try:
        code, message, data = _error_members(error)
    except NestedTooDeeply as exc:
        code, message, data = INTERNAL_ERROR, f"The error is {exc}", None
    if code == REQUEST_CANCELLED:
        return RequestCancelled(message, data)
    return RequestError(code, message, data)


def _error_members(error: Payload) -> tuple[int, str, Any]:
    try:
        decoded = decode_value(error, type=ErrorObject)
        data = None if decoded.data is UNSET else decode_value(decoded.data)
        return decoded.code, decoded.message, data
    except NestedTooDeeply:
        raise
    except msgspec.MsgspecError:
        # Lone surrogates and numbers beyond a float: valid JSON that msgspec refuses.
        loose = decode_loosely(error)
        return loose["code"], loose["message"], loose.get("data")
