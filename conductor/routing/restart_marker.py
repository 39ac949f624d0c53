"""Restart marker: the `_meta` member that tells a proxy that it was restarted. Pure.

A restarted proxy gets the recorded `initialize` with the marker in `_meta`. The marker holds the
ids of the open sessions, which are replayed next:

    "_meta": {"acp-conductor/restart": {"sessions": ["id", ...]}}

All proxies of the same process or nested chain see the marker, since `initialize` passes through
all of them. The successor does not: its `initialize` is answered from the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.json_object import join_members, members_or_empty
from conductor.jsonrpc.messages import Payload

__all__ = [
    "RESTART_MARKER",
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
        found = members_or_empty(params)
        meta = members_or_empty(found.get("_meta", b"{}"))
    except ValueError:
        return params
    meta[RESTART_MARKER] = msgspec.json.encode({"sessions": list(sessions)})
    found["_meta"] = join_members(meta)
    return join_members(found)


def restarted_sessions(params: Payload | None) -> list[str] | None:
    """The session ids of the marker in `initialize` params; `None` without a marker."""
    if params is None or _MARKER_BYTES not in (raw := bytes(params)):
        return None
    try:
        meta = members_or_empty(members_or_empty(raw).get("_meta", b"{}"))
        marker = meta.get(RESTART_MARKER)
        return None if marker is None else decode_value(marker, type=_Marker).sessions
    except (ValueError, *DECODE_ERRORS):
        return None


class _Marker(msgspec.Struct):
    sessions: list[str] = []


_MARKER_BYTES: Final = RESTART_MARKER.encode()
