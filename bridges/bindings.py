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
from typing import Any, Final, Literal, TypeAlias, TypeVar

import attrs
import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.bridge_api import DECODE_ERRORS, INVALID_PARAMS, METHOD_NOT_FOUND, Payload
from conductor.json_values import decode_loosely, decode_value

__all__ = [
    "SESSION_KEY",
    "Binding",
    "CarrierParams",
    "ConnectKey",
    "alternatives",
    "candidates",
    "connect_params",
    "connection_id_in",
    "decode_carrier",
    "disconnect_params",
    "error_code",
    "members_of",
    "message_params",
    "request_meta",
    "unwrap_outcome",
    "wrap_outcome",
]

SESSION_KEY: Final = "sessionId"
"""Member of the carrier's `_meta` with the ACP session id."""

ConnectKey: TypeAlias = Literal["serverId", "acpId"]

_encode_text = msgspec.json.Encoder().encode
T = TypeVar("T", bound=msgspec.Struct)


@attrs.frozen
class Binding:
    """A form of MCP over ACP: `mcp/connect` with this key, or stateless (`key` is `None`)."""

    key: ConnectKey | None


def candidates(declaration: dict[str, Any]) -> tuple[Binding, ...]:
    """Return the bindings that a declaration allows, in the order in which to try them.

    Two generations of the schema say `serverId`; only trying tells them apart. `mcp/connect` comes
    first: a stateless provider refuses it at once, while a connecting provider may misread a
    stateless message.
    """
    bindings: list[Binding] = []
    if "serverId" in declaration:
        bindings.append(Binding("serverId"))
    if "id" in declaration:
        bindings.append(Binding("acpId"))
    if "serverId" in declaration:
        bindings.append(Binding(None))
    return tuple(bindings)


def alternatives(
    binding: Binding, code: int | None, rest: Sequence[Binding]
) -> tuple[Binding, ...]:
    """Return the bindings of `rest` to try after the provider refused `binding` with error `code`.

    A provider without `mcp/connect` says "method not found". One that knows it with the other key
    says "invalid params". Any other error is about this server and does not depend on the binding.
    """
    if binding.key is None or code == METHOD_NOT_FOUND:
        return tuple(rest)
    if code == INVALID_PARAMS:
        return tuple(other for other in rest if other.key is not None)
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

    @property
    def session(self) -> str | None:
        raw = None if self.meta is UNSET else members_of(self.meta).get(SESSION_KEY)
        try:
            return None if raw is None else decode_value(raw, type=str)
        except msgspec.MsgspecError:
            return None


class _Outcome(msgspec.Struct, gc=False):
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Code(msgspec.Struct, gc=False):
    code: int


class _ConnectResult(msgspec.Struct, gc=False):
    connectionId: str


_decode_carrier = msgspec.json.Decoder(CarrierParams).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_decode_outcome = msgspec.json.Decoder(_Outcome).decode
_decode_connect_result = msgspec.json.Decoder(_ConnectResult).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def decode_carrier(params: Payload | None) -> CarrierParams:
    """Decode the params of an `mcp/*` message. Raises `ValueError` if they fit no binding."""
    raw = params if params is not None else b"{}"
    try:
        return _decode_carrier(raw)
    except msgspec.ValidationError as exc:
        raise ValueError(str(exc)) from None
    except msgspec.DecodeError:
        return msgspec.convert(_members_with_surrogates(raw, ("params", "_meta")), CarrierParams)


def members_of(raw: Payload) -> dict[str, Raw]:
    """Return the members of an object as raw JSON; empty for anything else."""
    try:
        return _decode_members(raw)
    except msgspec.ValidationError:
        return {}
    except msgspec.DecodeError:
        try:
            value = decode_loosely(raw)
        except ValueError:
            return {}
        return {name: _raw_json(member) for name, member in value.items()}


def request_meta(params: bytes) -> dict[str, Any]:
    """Return the decoded `_meta` of request params; empty if it is absent or not an object."""
    raw = members_of(params).get("_meta")
    value = decode_value(raw) if raw is not None else None
    return value if isinstance(value, dict) else {}


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
        outcome = _decode_outcome(result)
        inner, error = outcome.result, outcome.error
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        members = members_of(result)
        inner, error = members.get("result", UNSET), members.get("error", UNSET)
    if inner is not UNSET:
        return bytes(inner), None
    if error is not UNSET and bytes(error) != b"null":
        return None, bytes(error)
    return None


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


def connect_params(key: ConnectKey, server_id: str, session: str | None) -> bytes:
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


def _raw_json(value: Any) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())


def _members_with_surrogates(raw: Payload, kept: tuple[str, ...]) -> dict[str, Any]:
    """Decode an object with the standard library, which takes escaped lone surrogates; msgspec
    refuses them. The members in `kept` stay raw."""
    value = decode_loosely(raw)
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    return {name: _raw_json(v) if name in kept else v for name, v in value.items()}
