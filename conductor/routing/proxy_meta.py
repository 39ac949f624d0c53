"""Remove the `_meta` members reserved for proxies from the messages of an agent. Pure.

Proxies inform each other by `_meta` members with the prefix `acp-conductor/`, such as `is_handled`
(a proxy answered this command) and `mcpServerNames`. With forged members, an agent would evade the
proxy `budget` and the hooks. So the members are removed from results of session set-ups,
`initialize` and prompts, from session updates, and from the commands in either.

Only done in chains with proxies. A message without such members costs two searches, 0.15 µs for
each update of 200 bytes in a batch (`re` takes a third of the time of `in` here). They would take
0.6 ms for a message of 1 MiB. It is searched with vector instructions (0.1 ms), and decoded to its
`_meta` members (0.4 ms) if one of the words is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.acp import SESSION_SETUP_METHODS
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import join_members, list_items, object_members
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.stage import ForwardBatch, ForwardNotification, ForwardResponse, Stage

__all__ = ["WithoutProxyMeta"]

_METHODS_WITH_PROXY_META: Final = SESSION_SETUP_METHODS | {"initialize", "session/prompt"}
"""Requests with results that may contain reserved members."""
_PREFIX: Final = "acp-conductor/"
_WORD: Final = re.compile(rb"-conductor")
_ESCAPED_LETTER: Final = re.compile(rb"\\u00(?:2[dDfF]|[67][0-9a-fA-F])")
"""A letter or `-` of the prefix as a JSON escape sequence."""
_LARGE: Final = 32768


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
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
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
