"""Encoding and decoding of the three bindings of MCP over ACP. Pure.

    stateless   mcp/message {serverId, requestId, method, params?}            newest official schema
    connect     mcp/connect {serverId}, mcp/message {connectionId, …}, mcp/disconnect       Rust 2.0
    connect     the same, with {acpId}; the declaration says `id`                       the RFD text

The `params` of the inner MCP message stay raw JSON. The *carrier* is the ACP message around it; its
`_meta` has the ACP session id of a message (`SESSION_KEY`), once it is known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.bridge_api import (
    DECODE_ERRORS,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Payload,
    object_members,
)
from conductor.json_values import decode_loosely

__all__ = [
    "SESSION_KEY",
    "Binding",
    "CarrierParams",
    "alternatives",
    "candidates",
    "connect_params",
    "connection_id_in",
    "decode_carrier",
    "disconnect_params",
    "error_code",
    "message_params",
    "unwrap_outcome",
    "wrap_outcome",
]

SESSION_KEY: Final = "sessionId"
"""Member of the carrier's `_meta` with the ACP session id."""

Binding: TypeAlias = Literal["serverId", "acpId", "stateless"]
"""A form of MCP over ACP: `mcp/connect` with this key, or without connections."""

_encode_text = msgspec.json.Encoder().encode


def candidates(declaration: dict[str, Any]) -> tuple[Binding, ...]:
    """Return the bindings that a declaration allows, in the order in which to try them.

    Two generations of the schema say `serverId`; only trying tells them apart. `mcp/connect` comes
    first: a stateless provider refuses it at once, while a connecting provider may misread a
    stateless message.
    """
    if "serverId" not in declaration:
        return ("acpId",) if "id" in declaration else ()
    return ("serverId", "acpId", "stateless") if "id" in declaration else ("serverId", "stateless")


def alternatives(
    binding: Binding, code: int | None, rest: Sequence[Binding]
) -> tuple[Binding, ...]:
    """Return the bindings of `rest` to try after the provider refused `binding` with error `code`.

    A provider without `mcp/connect` says "method not found". One that knows it with the other key
    says "invalid params". Any other error is about this server and does not depend on the binding.
    """
    if binding == "stateless" or code == METHOD_NOT_FOUND:
        return tuple(rest)
    if code == INVALID_PARAMS:
        return tuple(other for other in rest if other != "stateless")
    return ()


class CarrierParams(msgspec.Struct, gc=False):
    """Params of an `mcp/connect`, `mcp/message` or `mcp/disconnect` in any binding."""

    serverId: str | UnsetType = UNSET
    acpId: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    connectionId: str | UnsetType = UNSET
    requestId: str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")

    @property
    def server(self) -> str | None:
        """The server id, under the key of any binding."""
        for value in (self.serverId, self.acpId, self.id):
            if isinstance(value, str):
                return value
        return None

    @property
    def inner(self) -> bytes | None:
        """Raw params of the inner MCP message; `None` if absent or null."""
        inner = None if self.params is UNSET else bytes(self.params)
        return None if inner == b"null" else inner


class _Code(msgspec.Struct, gc=False):
    code: int


class _ConnectResult(msgspec.Struct, gc=False):
    connectionId: str


_decode_carrier = msgspec.json.Decoder(CarrierParams).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_decode_connect_result = msgspec.json.Decoder(_ConnectResult).decode


def decode_carrier(params: Payload | None) -> CarrierParams:
    """Decode the params of an `mcp/*` message. Raises `ValueError` if they fit no binding."""
    raw = params if params is not None else b"{}"
    try:
        return _decode_carrier(raw)
    except msgspec.ValidationError as exc:
        raise ValueError(str(exc)) from None
    except msgspec.DecodeError:  # lone surrogates, which msgspec refuses
        members = object_members(raw)
        values = {name: Raw(item) for name, item in members.items() if name in ("params", "_meta")}
        texts = {name: decode_loosely(members[name]) for name in members.keys() - values.keys()}
        return msgspec.convert(texts | values, CarrierParams)


def connection_id_in(result: Payload) -> str | None:
    """Return the connection id in an `mcp/connect` result; `None` if there is none."""
    try:
        return _decode_connect_result(result).connectionId
    except msgspec.MsgspecError:
        return None


def unwrap_outcome(result: Payload) -> tuple[bytes | None, bytes | None] | None:
    """Return `(result, error)` of the inner MCP message in a stateless `mcp/message` result, as raw
    JSON; `result` has precedence. `None` if neither is present."""
    try:
        members = object_members(result)
    except ValueError:
        return None
    error = members.get("error", b"null")
    if "result" in members:
        return members["result"], None
    return (None, error) if error != b"null" else None


def wrap_outcome(result: Payload | None, error: Payload | None) -> bytes:
    """Return the stateless `mcp/message` result that carries an MCP result or error."""
    if result is not None:
        return b'{"result":%b}' % bytes(result)
    return b'{"error":%b}' % bytes(error if error is not None else b"null")


def error_code(error: Payload) -> int | None:
    """Return the code of a raw error object; `None` if it has none."""
    try:
        return _decode_code(error).code
    except DECODE_ERRORS:
        return None


def connect_params(key: Binding, server_id: str, session: str | None) -> bytes:
    return b'{"%b":%b%b}' % (key.encode(), _encode(server_id), _meta(session))


def disconnect_params(connection_id: str) -> bytes:
    return b'{"connectionId":%b}' % _encode(connection_id)


def message_params(
    method: str,
    params: Payload | None,
    *,
    connection_id: str | None = None,
    server_id: str | None = None,
    request_id: str | None = None,
    session: str | None = None,
) -> bytes:
    """Return `mcp/message` params: with a connection id, or with a server id and a request id."""
    if connection_id is not None:
        head = b'"connectionId":%b' % _encode(connection_id)
    else:
        head = b'"serverId":%b,"requestId":%b' % (_encode(server_id), _encode(request_id))
    inner = b',"params":%b' % bytes(params) if params is not None else b""
    return b'{%b,"method":%b%b%b}' % (head, _encode(method), inner, _meta(session))


def _meta(session: str | None) -> bytes:
    return b',"_meta":{"%b":%b}' % (SESSION_KEY.encode(), _encode(session)) if session else b""


def _encode(text: str | None) -> bytes:
    """Encode a text as JSON; lone surrogates, which msgspec refuses, are escaped."""
    try:
        return _encode_text(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()
