"""The `_meta` members with the prefix `acp-conductor/`, which inform proxies in any process. Pure.

    initialize        "acp-conductor/restart": {"sessions": ["id", ...]}
    session set-up    "acp-conductor/mcpServerNames": {"tools-2": "tools"}

A restarted proxy gets the recorded `initialize` with the restart marker: the ids of the open
sessions, which are replayed next. All proxies of the same process or nested chain see it, since
`initialize` passes through all of them. The successor does not: its `initialize` is answered from
the record.

A bridge may have to give the agent a server under another name than the declared one. The result of
the session set-up then has the declared names, for proxies between the bridge and the client: the
agent uses its own in tool calls and permission requests.

Proxies tell each other more, such as `is_handled` (a proxy answered this command). With forged
members, an agent would evade the proxy `budget` and the hooks. So `WithoutProxyMeta` removes them
from an agent's results of session set-ups, `initialize` and prompts, from its session updates, and
from the commands in either.

Only done in chains with proxies. A message without such members costs two searches, 0.15 µs for
each update of 200 bytes in a batch (`re` takes a third of the time of `in` here). They would take
0.6 ms for a message of 1 MiB. It is searched with vector instructions (0.1 ms), and decoded to its
`_meta` members (0.4 ms) if one of the words is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.acp import SESSION_SETUP_METHODS
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import (
    join_members,
    list_items,
    member_at,
    object_members,
    with_member,
)
from conductor.jsonrpc.messages import Payload, RawMember
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.stage import ForwardBatch, ForwardNotification, ForwardResponse, Stage

__all__ = [
    "RESTART_MARKER",
    "SERVER_NAMES",
    "WithoutProxyMeta",
    "declared_server_names",
    "restarted_sessions",
    "with_restart_marker",
    "with_server_names",
]

RESTART_MARKER: Final = "acp-conductor/restart"
SERVER_NAMES: Final = "acp-conductor/mcpServerNames"

_METHODS_WITH_PROXY_META: Final = SESSION_SETUP_METHODS | {"initialize", "session/prompt"}
"""Requests with results that may contain reserved members."""
_PREFIX: Final = "acp-conductor/"
_WORD: Final = re.compile(rb"-conductor")
_ESCAPED_LETTER: Final = re.compile(rb"\\u00(?:2[dDfF]|[67][0-9a-fA-F])")
"""A letter or `-` of the prefix as a JSON escape sequence."""
_LARGE: Final = 32768


def with_restart_marker(params: bytes, sessions: Iterable[str]) -> bytes:
    """The params of an `initialize` with the marker for these sessions; unchanged if they are
    nested too deeply to be decoded again."""
    marker = msgspec.json.encode({"sessions": list(sessions)})
    try:
        return with_member(params, ("_meta", RESTART_MARKER), marker)
    except ValueError:
        return params


def restarted_sessions(params: Payload | None) -> list[str] | None:
    """The session ids of the marker in `initialize` params; `None` without a marker."""
    if params is None or RESTART_MARKER.encode() not in bytes(params):
        return None
    marker = member_at(params, "_meta", RESTART_MARKER)
    try:
        return None if marker is None else decode_value(marker, type=_Marker).sessions
    except DECODE_ERRORS:
        return None


class _Marker(msgspec.Struct):
    sessions: list[str] = []


def with_server_names(result: bytes, names: Mapping[str, str]) -> bytes:
    """The raw result with the declared names by those that the agent was given.

    `null`, the result of `session/load` from older agents, becomes an object. Unchanged if `names`
    is empty, or if the result is not an object, or is nested too deeply to be decoded.
    """
    if not names:
        return result
    holder = b"{}" if result == b"null" else result
    try:
        return with_member(holder, ("_meta", SERVER_NAMES), json.dumps(dict(names)).encode())
    except ValueError:
        return result


def declared_server_names(result: Any) -> dict[str, str]:
    """Declared name by the name that the agent was given; empty if no server was renamed.

    `result` is the decoded result of a session set-up.
    """
    meta = result.get("_meta") if isinstance(result, Mapping) else None
    names = meta.get(SERVER_NAMES) if isinstance(meta, Mapping) else None
    if not isinstance(names, Mapping):
        return {}
    return {given: name for given, name in names.items() if isinstance(name, str)}


class _UpdateMeta(msgspec.Struct, gc=False):
    """The members that `_cleaned_object` looks at."""

    meta: Raw = msgspec.field(default=Raw(), name="_meta")
    update: _UpdateMeta | UnsetType = UNSET
    commands: Raw = msgspec.field(default=Raw(), name="availableCommands")


class WithoutProxyMeta(Stage):
    """Removes the members from the messages of an agent."""

    __slots__ = ()

    name = "proxy meta"
    sent: frozenset[str] = _METHODS_WITH_PROXY_META
    received: frozenset[str] = frozenset({SESSION_UPDATE})

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        forward(call, None if result is None else without_proxy_meta(result), error)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        forward(method, None if params is None else without_proxy_meta(params))

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        if notifications.has(may_have_proxy_meta):
            params = [without_proxy_meta(each) for each in notifications.params]
            notifications = NotificationBatch(notifications.method, params)
        forward(notifications)


def may_have_proxy_meta(data: Payload) -> bool:
    """Whether this JSON may contain a reserved member; false positives are possible."""
    return _WORD.search(data) is not None or _ESCAPED_LETTER.search(data) is not None


def without_proxy_meta(payload: Payload) -> Payload:
    """Params of `session/update`, or a result, without reserved members.

    All other members keep their bytes. JSON that cannot be decoded is returned unchanged.
    """
    if len(payload) > _LARGE and not _large_may_have_proxy_meta(payload):
        return payload
    return _cleaned_object(bytes(payload)) if may_have_proxy_meta(payload) else payload


def _large_may_have_proxy_meta(data: Payload) -> bool:
    """The same as `may_have_proxy_meta`, in a sixth of the time for 1 MiB.

    Searches with vector instructions, each for one string: several at once need ten times as long
    in text with many escapes.
    """
    if not any(search(data) for search in _searches()):
        return False
    try:
        found: _UpdateMeta | UnsetType = decode_value(data, type=_UpdateMeta)
    except DECODE_ERRORS:
        return True
    while found is not UNSET:
        if may_have_proxy_meta(found.meta) or may_have_proxy_meta(found.commands):
            return True
        found = found.update
    return False


@cache
def _searches() -> tuple[Callable[[Payload], object], ...]:
    """Searches for the prefix and for an escaped letter; imported when the first is needed."""
    from ahocorasick_rs import BytesAhoCorasick

    patterns = (rb"-conductor", rb"\u00")  # not the slash, which may be written `\/`
    return tuple(BytesAhoCorasick([each]).find_matches_as_indexes for each in patterns)


def _cleaned_object(data: bytes) -> bytes:
    """An object without reserved members in itself, its `update` and its commands."""
    found = _members(data)
    if found is None:
        return data
    changed = dict(found)
    if "_meta" in found:
        changed["_meta"] = _without_proxy_members(found["_meta"])
    if "update" in found:
        changed["update"] = _cleaned_object(found["update"])
    if "availableCommands" in found:
        changed["availableCommands"] = _cleaned_each(found["availableCommands"])
    return data if changed == found else join_members(changed)


def _cleaned_each(data: bytes) -> bytes:
    try:
        items = list_items(data)
    except ValueError:
        return data
    cleaned = [_cleaned_object(each) for each in items]
    return data if cleaned == items else b"[" + b",".join(cleaned) + b"]"


def _without_proxy_members(meta: bytes) -> bytes:
    found = _members(meta)
    if found is None or not any(name.startswith(_PREFIX) for name in found):
        return meta
    return join_members({k: v for k, v in found.items() if not k.startswith(_PREFIX)})


def _members(data: bytes) -> dict[str, bytes] | None:
    try:
        return object_members(data)
    except ValueError:
        return None
