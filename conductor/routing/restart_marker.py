"""Restart marker: the `_meta` member that tells a proxy that it was restarted. Pure.

A restarted proxy gets the recorded `initialize` with the marker in `_meta`. The marker holds the
ids of the open sessions, which are replayed next:

    "_meta": {"acp-conductor/restart": {"sessions": ["id", ...]}}

All proxies of the same process or nested chain see the marker, since `initialize` passes through
all of them. The successor does not: its `initialize` is answered from the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from conductor.jsonrpc.codec import members
from conductor.jsonrpc.messages import Payload

__all__ = [
    "RESTART_MARKER",
    "join_members",
    "params_members",
    "restarted_sessions",
    "with_restart_marker",
]

RESTART_MARKER: Final = "acp-conductor/restart"
"""Name of the `_meta` member."""


def with_restart_marker(params: bytes, sessions: Iterable[str]) -> bytes:
    """The params of an `initialize` with the marker for these sessions.

    Unchanged if the params are nested too deeply to be decoded again.
    """
    try:
        found = params_members(params)
        meta = params_members(bytes(found.get("_meta", b"{}")))
    except RecursionError:
        return params
    meta[RESTART_MARKER] = msgspec.json.encode({"sessions": list(sessions)})
    found["_meta"] = join_members(meta)
    return join_members(found)


def restarted_sessions(params: Payload | None) -> list[str] | None:
    """The session ids of the marker in `initialize` params; `None` without a marker."""
    if params is None or _MARKER_BYTES not in (raw := bytes(params)):
        return None
    try:
        marker = params_members(bytes(params_members(raw).get("_meta", b"{}"))).get(RESTART_MARKER)
        return None if marker is None else _decode(marker).sessions
    except (msgspec.MsgspecError, RecursionError):
        return None


def params_members(params: bytes) -> dict[str, Payload]:
    """The members of a JSON object as raw JSON; empty for any other value.

    Raises `RecursionError` if the params are nested almost as deeply as `codec` permits.
    """
    try:
        return dict(msgspec.json.decode(params, type=dict[str, msgspec.Raw]))
    except msgspec.ValidationError:
        return {}
    except msgspec.MsgspecError:
        return dict(members(params))  # lone surrogates, which msgspec refuses


def join_members(found: Mapping[str, Payload]) -> bytes:
    """A JSON object of raw members."""
    pairs = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in found.items())
    return b"{" + b",".join(pairs) + b"}"


class _Marker(msgspec.Struct):
    sessions: list[str] = []


_MARKER_BYTES: Final = RESTART_MARKER.encode()
_decode: Final = msgspec.json.Decoder(_Marker).decode
