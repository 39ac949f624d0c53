"""Facts of MCP used in several modules: method names, members of `_meta` in params. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bridges.bindings import members_of
from conductor.bridge_api import INVALID_PARAMS, Payload, encode_error
from conductor.json_values import decode_value

__all__ = [
    "ACKNOWLEDGED",
    "CANCELLED",
    "MODERN_META",
    "SUBSCRIPTIONS_LISTEN",
    "SUBSCRIPTION_ID",
    "SUBSCRIPTION_NOTIFICATIONS",
    "TOOLS_CHANGED",
    "TOO_MANY_RESOURCES",
    "are_too_many",
    "is_modern",
    "progress_token",
    "reported_token",
    "subscription_id_in",
    "with_subscription_id",
]

CANCELLED: Final = "notifications/cancelled"
TOO_MANY_RESOURCES: Final = encode_error(INVALID_PARAMS, "Too many resources are subscribed to")
_MAX_URI_CHARACTERS: Final = 256 * 1024
SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
MODERN_META: Final = b"io.modelcontextprotocol/protocolVersion"
"""Member of `_meta` in every request of revision 2026-07-28, and in no earlier revision."""
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
SUBSCRIPTION_NOTIFICATIONS: Final = frozenset(
    {
        ACKNOWLEDGED,
        TOOLS_CHANGED,
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


def are_too_many(uris: Sequence[Any]) -> bool:
    """Whether the URIs to which a client is subscribed, each with an overhead, are too long
    together: all are remembered, and sent with each new one."""
    return sum(len(str(uri)) + 100 for uri in uris) > _MAX_URI_CHARACTERS


def is_modern(params: Payload | None) -> bool:
    """Whether request params are of revision 2026-07-28, by the version in their `_meta`."""
    if params is None or MODERN_META not in bytes(params):
        return False
    meta = members_of(params).get("_meta")
    return meta is not None and MODERN_META.decode() in members_of(meta)


def progress_token(params: Payload | None) -> bytes | None:
    """The raw progress token in `_meta` of a request; `None` if absent or nested too deeply."""
    try:
        meta = members_of(params).get("_meta") if params is not None else None
        token = members_of(meta).get("progressToken") if meta is not None else None
    except RecursionError:
        return None
    return None if token is None else bytes(token)


def reported_token(params: Payload | None) -> bytes | None:
    """The raw progress token that a progress notification names; `None` if it names none."""
    token = members_of(params).get("progressToken") if params is not None else None
    return None if token is None else bytes(token)


def subscription_id_in(params: bytes) -> int | str | None:
    """The subscription id in the `_meta` of a notification's params; `None` if it has none."""
    meta = members_of(params).get("_meta")
    raw = members_of(meta).get(SUBSCRIPTION_ID) if meta is not None else None
    value = decode_value(raw) if raw is not None else None
    return value if isinstance(value, int | str) else None


def with_subscription_id(params: bytes, id: int | str | None) -> bytes:
    """Return the params with another subscription id in `_meta`."""
    members = members_of(params)
    meta = members_of(members.get("_meta", b"{}"))
    if SUBSCRIPTION_ID not in meta:
        return params
    meta[SUBSCRIPTION_ID] = msgspec.Raw(msgspec.json.encode(id))
    members["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
    return msgspec.json.encode(members)
