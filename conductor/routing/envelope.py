"""The successor envelope and the names of the three proxy dialects. Pure.

The newest official schema and the RFD use `proxy/*`, the Rust SDK uses `_proxy/*`. The oldest one
(Thinkwell, `_meta`) has an `initialize` with `_meta.proxy`, which its result repeats, and two names
of envelopes. The envelopes are the same. All are accepted from every component at any time; the
conductor sends in the dialect in which the component was initialized.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.errors import RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS, detached_copy
from conductor.jsonrpc.json_object import join_members, member_at, object_members, with_member
from conductor.jsonrpc.messages import (
    INVALID_PARAMS,
    Payload,
    Pieces,
    encode_id,
    encode_method,
    notification_pieces,
)

__all__ = [
    "DIALECTS",
    "ENVELOPE_METHODS",
    "HANDSHAKE",
    "INIT_METHODS",
    "TRIED",
    "Dialect",
    "DialectNames",
    "EnvelopedMessage",
    "is_marked",
    "marked",
    "notification_affixes",
    "unmarked",
    "unwrap",
    "wrap_notification",
    "wrap_request",
]

Dialect = Literal["proxy", "_proxy", "_meta"]


class DialectNames(msgspec.Struct, frozen=True):
    """The methods of a dialect: of the initialization of a proxy, and of the envelopes."""

    initialize: str
    request: str
    notification: str


DIALECTS: Final[dict[Dialect, DialectNames]] = {
    "proxy": DialectNames("proxy/initialize", "proxy/successor", "proxy/successor"),
    "_proxy": DialectNames("_proxy/initialize", "_proxy/successor", "_proxy/successor"),
    "_meta": DialectNames(
        "initialize", "_proxy/successor/request", "_proxy/successor/notification"
    ),
}
TRIED: Final[tuple[Dialect, ...]] = ("proxy", "_proxy")
"""Those that are tried, in this order: an agent would take the `initialize` of `_meta`."""
_MARK: Final = ("_meta", "proxy")

INIT_METHODS: Final[dict[str, Dialect]] = {DIALECTS[each].initialize: each for each in TRIED}
HANDSHAKE: Final = frozenset({*INIT_METHODS, "initialize"})
"""Requests that initialize a component."""
ENVELOPE_METHODS: Final[dict[str, Dialect]] = {
    method: dialect
    for dialect, names in DIALECTS.items()
    for method in (names.request, names.notification)
}


def marked(initialize: Payload) -> bytes:
    """The params or the result of an `initialize` of a proxy in the dialect `_meta`."""
    try:
        return with_member(initialize, _MARK, b"true")
    except ValueError:
        return bytes(initialize)


def is_marked(params: Payload | None) -> bool:
    """Whether these are the params of an `initialize` of a proxy in the dialect `_meta`."""
    return params is not None and member_at(params, *_MARK) == b"true"


def unmarked(params: Payload) -> bytes:
    """The params of an `initialize` for other components."""
    if not is_marked(params):
        return bytes(params)
    members = object_members(params)
    meta = object_members(members.pop("_meta"))
    del meta["proxy"]
    return join_members({**members, "_meta": join_members(meta)} if meta else members)


class _Envelope(msgspec.Struct, gc=False):
    method: str
    params: Raw | UnsetType = UNSET


_affixes: dict[tuple[Dialect | None, str], tuple[bytes, bytes]] = {}
_decode: Final = msgspec.json.Decoder(_Envelope).decode


class EnvelopedMessage(msgspec.Struct, frozen=True):
    """The message inside of an envelope, with the raw JSON of its `params` member.

    The message's own `_meta` is in its params; the envelope's `_meta` is for this hop only and is
    dropped (newest schema).
    """

    method: str
    params: Payload | None


def unwrap(params: Payload | None) -> EnvelopedMessage:
    """Decode the params of a `proxy/successor` to the message inside.

    Absent and null inner params both become `None`. Raises `RequestError` (-32602) if the params
    are not an envelope; its data says what is wrong.
    """
    try:
        envelope = _decode(params if params is not None else b"null")
    except DECODE_ERRORS as exc:
        envelope_or_none = _with_surrogates(params)
        if envelope_or_none is None:
            raise RequestError(INVALID_PARAMS, "Invalid params", {"error": str(exc)}) from None
        envelope = envelope_or_none
    inner = envelope.params
    if inner is UNSET:
        return EnvelopedMessage(envelope.method, None)
    first = memoryview(inner)[0]
    if first in b"{[":
        assert params is not None
        return EnvelopedMessage(envelope.method, detached_copy(inner, len(params)))
    if bytes(inner) == b"null":
        return EnvelopedMessage(envelope.method, None)
    problem = "JSON-RPC params must be an object or array"
    raise RequestError(INVALID_PARAMS, "Invalid params", {"error": problem})


def _with_surrogates(params: Payload | None) -> _Envelope | None:
    """Decode an envelope that contains a lone surrogate, which msgspec refuses; `None` if
    invalid."""
    try:
        found = object_members(params) if params is not None else {}
        method = decode_value(found["method"], type=str)
    except (KeyError, ValueError):
        return None
    return _Envelope(method, Raw(found["params"]) if "params" in found else UNSET)


def wrap_request(dialect: Dialect, id: int, method: str, params: Payload | None) -> Pieces:
    """A request in its envelope, as one line. `params` is always there: Rust receivers require
    it."""
    head = b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":{"method":%b,"params":' % (
        encode_id(id),
        DIALECTS[dialect].request.encode(),
        encode_method(method),
    )
    return (head, params if params is not None else b"null", b"}}\n")


def notification_affixes(dialect: Dialect | None, method: str) -> tuple[bytes, bytes]:
    """Bytes before and after the params of a notification's line; with a dialect, enveloped."""
    head, tail = _affixes.get((dialect, method), (b"", b""))
    if not head:
        pieces = notification_pieces if dialect is None else partial(wrap_notification, dialect)
        head, _, tail = b"".join(pieces(method, b"\0")).partition(b"\0")
        if len(_affixes) > 1000:
            _affixes.clear()
        _affixes[dialect, method] = head, tail
    return head, tail


def wrap_notification(dialect: Dialect, method: str, params: Payload | None) -> Pieces:
    """A notification in its envelope, as one line."""
    head = b'{"jsonrpc":"2.0","method":"%b","params":{"method":%b,"params":' % (
        DIALECTS[dialect].notification.encode(),
        encode_method(method),
    )
    return (head, params if params is not None else b"null", b"}}\n")
