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
from conductor.proxy import Forward, Proxy, Session, on, on_update, per_session
from proxies.shared.client_texts import notice_text
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
from proxies.v1_v2.members import Json, objects, text_block
from proxies.v1_v2.to_v1 import PlansToV1, V1Features

__all__ = ["KnownKinds"]

_CHUNKS: Final = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})
_ALWAYS: Final = _CHUNKS | {
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "plan",
    "session_info_update",
    "tool_call",
    "tool_call_update",
    "usage_update",
}
_SILENT: Final = frozenset(
    {
        "compaction_summary_chunk",
        "compaction_update",
        "session_message",
        "session_message_chunk",
        "state_update",
        "subagent_update",
        "tool_call_content_chunk",
    }
)
"""Kinds with texts that are not part of the conversation, or are shown elsewhere."""


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

    plans = per_session(lambda: PlansToV1(knows_ids=False))

    @on("initialize")
    async def initialize(self, params: Json, forward: Forward) -> Any:
        self._features = V1Features.announced(params)
        self._known = _kinds(self._features) - set(self.lacks)
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
        if is_known and (head.sessionUpdate not in _CHUNKS or head.has_known_block):
            await forward()
            return
        for update in _chunk(read.update) if is_known else self._shown(read, head.sessionUpdate):
            await forward(msgspec.json.encode({**_decode_members(params), "update": update}))

    @on_update("tool_call", "tool_call_update")
    async def tool_call(self, session: Session, update: Json, forward: Forward) -> None:
        know_tool_call(update)
        await forward()

    @on_update("plan")
    async def plan(self, session: Session, update: Json, forward: Forward) -> None:
        know_plan(update)
        await forward()

    @on_update("available_commands_update")
    async def commands(self, session: Session, update: Json, forward: Forward) -> None:
        know_commands(update)
        await forward()

    @on_update("config_option_update")
    async def changed(self, session: Session, update: Json, forward: Forward) -> None:
        self._know_options(update)
        await forward()

    @on("session/new", "session/load", "session/resume", "session/fork")
    async def set_up(self, params: Json, forward: Forward) -> Any:
        return self._know_options(await forward())

    @on("session/set_config_option")
    async def set_option(self, params: Json, forward: Forward) -> Any:
        return self._know_options(await forward())

    @on("session/request_permission")
    async def permission(self, params: Json, forward: Forward) -> Any:
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
            meta: Json = _decode_members(members.get("_meta", b"{}"))
        except msgspec.DecodeError:
            return result
        meta = {**meta, ORIGINAL: {"stopReason": reason}}
        return msgspec.json.encode({**members, "stopReason": "end_turn", "_meta": meta})

    # ----------------------------------------------------------------------------------------------

    def _know_options(self, holder: Any) -> Any:
        know_options(holder, booleans=self._features.boolean_options)
        return holder

    def _shown(self, read: _RawUpdateParams, kind: str) -> list[Json]:
        """The updates that show one of a kind that is not known; the first keeps it in `_meta`."""
        original = decode_value(read.update)
        match kind:
            case "notice":
                shown = [_message("agent_message_chunk", text_block(notice_text(original)))]
            case "plan_update":
                shown = self.plans[read.sessionId].update(original)
            case "plan_removed":
                shown = self.plans[read.sessionId].removed(original)
            case _:
                shown = _messages(kind, original)
        if shown:
            shown[0]["_meta"] = {**(original.get("_meta") or {}), ORIGINAL: read.update}
        return shown


def _chunk(update: msgspec.Raw) -> list[Json]:
    """A piece of a message with a text in place of a block of a type that is not known."""
    members = _decode_members(update)
    block = known_block(decode_value(members["content"]))
    block["_meta"][ORIGINAL] = members["content"]  # with the spelling of its numbers
    return [{**members, "content": block}]


def _kinds(features: V1Features) -> frozenset[str]:
    """The kinds of updates of the stable schema, and those that a client announces."""
    announced = {
        "notice": features.notices,
        "compaction_update": features.compaction,
        "compaction_summary_chunk": features.compaction,
        "plan_update": features.plans,
        "plan_removed": features.plans,
        "subagent_update": features.subagents,
        "session_message": features.subagents,
        "session_message_chunk": features.subagents,
    }
    return _ALWAYS | {kind for kind, is_known in announced.items() if is_known}


def _messages(kind: str, update: Json) -> list[Json]:
    """Pieces of a message with what can be read of an update of any kind."""
    if kind.startswith("_") or kind in _SILENT:
        return []
    role = "agent_thought_chunk" if "thought" in kind else "agent_message_chunk"
    if kind.startswith("user"):
        role = "user_message_chunk"
    return [_message(role, known_block(block)) for block in _blocks(update)]


def _blocks(update: Json) -> list[Json]:
    """The readable content of an update of any kind: content blocks, or a title and a
    description."""
    content = update.get("content")
    blocks = content if isinstance(content, list) else [content]
    found = [each for each in objects(blocks) if isinstance(each.get("type"), str)]
    if found:
        return found
    texts = [update.get(name) for name in ("title", "description", "message", "text")]
    if isinstance(content, str):
        texts.append(content)
    said = [each for each in texts if isinstance(each, str) and each]
    return [text_block(f"[{': '.join(said)}]\n")] if said else []


def _message(kind: str, block: Any) -> Json:
    return {"sessionUpdate": kind, "content": block}
