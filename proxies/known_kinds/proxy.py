"""`known_kinds`: replaces updates, content and values that an older client does not know by the
nearest that it knows.

The protocol adds kinds of updates, types of content and values of enumerations. Many clients refuse
a message with one that they do not know: it is lost, or the turn fails. Here such an update becomes
a message or a plan, or is left out; an unknown block of content becomes a text, a tool kind
`other`, a status `in_progress` or `failed`, a stop reason `end_turn`. `_meta` keeps the original.
Known are the values of the stable schema of version 1, and what the client announces. In version 2
clients accept any value.

Options:
    lacks  kinds of updates that this client does not know although the stable schema has them, such
           as `usage_update`
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from conductor.json_values import decode_value
from conductor.proxy import Forward, Proxy, Session, get_logger, on, on_update, per_session
from proxies.known_kinds.updates import CHUNKS, UnknownUpdates, known_kinds
from proxies.v1_v2.known_values import (
    BLOCKS,
    ORIGINAL,
    STOP_REASONS,
    know_commands,
    know_options,
    know_permission,
    know_plan,
    know_tool_call,
    known_block,
)
from proxies.v1_v2.to_v1 import V1Features

__all__ = ["KnownKinds"]

_MAX_LOGGED: Final = 100
log: Final = get_logger(component="known_kinds")


class _Block(msgspec.Struct):
    type: str = "text"


class _Head(msgspec.Struct):
    sessionUpdate: str
    content: _Block | list[msgspec.Raw] | str | None = None

    @property
    def has_known_block(self) -> bool:
        """Whether the block of a chunk can be passed."""
        return not isinstance(self.content, _Block) or self.content.type in BLOCKS


class _RawUpdateParams(msgspec.Struct):
    sessionId: str
    update: msgspec.Raw


_decode: Final = msgspec.json.Decoder(_RawUpdateParams).decode
_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@attrs.define
class KnownKinds(Proxy):
    """Show unknown updates, content and values as the nearest that the client knows."""

    versions = (1,)
    on_error = "pass"

    lacks: list[str] = attrs.field(factory=list)
    _features: V1Features = attrs.field(factory=V1Features, init=False)
    _known: frozenset[str] = attrs.field(factory=frozenset, init=False)
    _logged: set[str] = attrs.field(factory=set, init=False)

    unknown = per_session(UnknownUpdates)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        self._features = V1Features.announced(params)
        self._known = known_kinds(self._features) - set(self.lacks)
        return await forward()

    @on("session/update")
    async def update(self, params: bytes, forward: Forward) -> None:
        try:
            read = _decode(params)
            head = _decode_head(read.update)
        except msgspec.DecodeError:
            await forward()  # not for this proxy to judge
            return
        is_known = head.sessionUpdate in self._known
        if is_known and (head.sessionUpdate not in CHUNKS or head.has_known_block):
            await forward()
            return
        for update in _chunk(read.update) if is_known else self._shown(read, head.sessionUpdate):
            await forward(msgspec.json.encode({**_decode_members(params), "update": update}))

    @on_update("tool_call", "tool_call_update")
    async def tool_call(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        know_tool_call(update)
        await forward()

    @on_update("plan")
    async def plan(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        know_plan(update)
        await forward()

    @on_update("available_commands_update")
    async def commands(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        know_commands(update)
        await forward()

    @on_update("config_option_update")
    async def changed(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        self._know_options(update)
        await forward()

    @on("session/new", "session/load", "session/resume", "session/fork")
    async def set_up(self, params: dict[str, Any], forward: Forward) -> Any:
        return self._know_options(await forward())

    @on("session/set_config_option")
    async def set_option(self, params: dict[str, Any], forward: Forward) -> Any:
        return self._know_options(await forward())

    @on("session/request_permission")
    async def permission(self, params: dict[str, Any], forward: Forward) -> Any:
        know_permission(params)
        return await forward()

    @on("session/prompt")
    async def prompt(self, params: bytes, forward: Forward) -> Any:
        result = await forward()
        try:
            members = _decode_members(result or b"{}")
            reason = decode_value(members.get("stopReason", b"null"))
            if not isinstance(reason, str) or reason in STOP_REASONS:
                return result
            meta = _with_original(members.get("_meta"), {"stopReason": reason})
        except msgspec.DecodeError:
            return result
        return msgspec.json.encode({**members, "stopReason": "end_turn", "_meta": meta})

    # ----------------------------------------------------------------------------------------------

    def _know_options(self, holder: Any) -> Any:
        know_options(holder, booleans=self._features.boolean_options)
        return holder

    def _shown(self, read: _RawUpdateParams, kind: str) -> list[dict[str, Any]]:
        """The updates that show one of a kind that is not known; the first keeps it in `_meta`."""
        original = decode_value(read.update)
        shown = self.unknown[read.sessionId].shown(original)
        if not shown and kind not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(kind)
            log.info("updates left out: the client does not know them", kind=kind)
        for position, each in enumerate(shown):
            meta = original.get("_meta")
            if position == 0:
                each["_meta"] = {**_object(meta), ORIGINAL: read.update}
        return shown


def _chunk(update: msgspec.Raw) -> list[dict[str, Any]]:
    """A piece of a message with a text in place of a block of a type that is not known."""
    members = _decode_members(update)
    block = known_block(decode_value(members["content"]))
    block["_meta"][ORIGINAL] = members["content"]  # with the spelling of its numbers
    return [{**members, "content": block}]


def _with_original(meta: msgspec.Raw | None, original: dict[str, Any]) -> dict[str, Any]:
    try:
        members: dict[str, Any] = _decode_members(meta or b"{}")
    except msgspec.ValidationError:
        members = {}
    return {**members, ORIGINAL: original}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
