"""One session of an agent of version 2, for a client of version 1. Pure.

`convert` returns the updates of version 1 that show an update of version 2, none if the client
cannot show it. State updates are none: they end turns, which `v1_v2` does. Version 2 replaces the
content of a message by a whole-message update, version 1 can only append to it. Version 1 has one
plan of entries (`plan`), and as an announced extension the plans of version 2, which have ids and
several types.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.shared.capabilities import client_has
from proxies.shared.client_texts import notice_text
from proxies.v1_v2.known_values import (
    ENTRY_STATUSES,
    PRIORITIES,
    convert_block,
    convert_blocks,
    convert_suggestions,
)
from proxies.v1_v2.members import MAIN_PLAN, Json, each, known, objects, text_block, without
from proxies.v1_v2.sessions import convert_commands, convert_options, mode_option, modes_of_option
from proxies.v1_v2.tool_calls import ToolCallsToV1

__all__ = ["PlansToV1", "SessionToV1", "V1Features"]

_COMMAND = re.compile(r"/(\S+)\s*(.*)", re.DOTALL)
_SUBAGENTS = ("subagent_update", "session_message", "session_message_chunk")
_COMPACTION = ("compaction_update", "compaction_summary_chunk")
_PLANS = frozenset({"items", "file", "markdown"})
_MAX_MESSAGES: Final = 100
"""Messages of a session whose text is remembered; the oldest are forgotten."""


@attrs.frozen
class V1Features:
    """Features that a client of version 1 can show beyond the minimum."""

    plans: bool = False
    notices: bool = False
    compaction: bool = False
    subagents: bool = False
    boolean_options: bool = False
    suggestions: bool = False
    cursors: bool = False

    @classmethod
    def announced(cls, params: Json) -> V1Features:
        """From the params of `initialize`."""
        return cls(
            plans=client_has(params, "plan"),
            notices=client_has(params, "session", "notices"),
            compaction=client_has(params, "session", "compaction"),
            subagents=client_has(params, "subagents"),
            boolean_options=client_has(params, "session", "configOptions", "boolean"),
            suggestions=client_has(params, "session", "promptSuggestions"),
            cursors=client_has(params, "session", "cursors"),
        )


@attrs.define
class SessionToV1:
    """Converts the updates and results of one session."""

    features: V1Features
    messages: MessagesToV1 = attrs.field(factory=lambda: MessagesToV1(), init=False)
    tool_calls: ToolCallsToV1 = attrs.field(init=False)
    plans: PlansToV1 = attrs.field(init=False)
    mode: Json | None = attrs.field(default=None, init=False)
    """The option of version 2 that is the mode."""
    skills: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Names of the skills, which the client has as commands."""

    def __attrs_post_init__(self) -> None:
        self.tool_calls = ToolCallsToV1(self.features.subagents)
        self.plans = PlansToV1(self.features.plans)

    def convert(self, update: Json) -> list[Json]:
        match update.get("sessionUpdate"):
            case "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk":
                return self.messages.chunk(update)
            case "user_message" | "agent_message" | "agent_thought":
                return self.messages.whole(update)
            case "state_update" | "replay_complete":
                return []
            case "tool_call_update":
                return self.tool_calls.update(update)
            case "tool_call_content_chunk":
                return self.tool_calls.chunk(update)
            case "terminal_update":
                return self.tool_calls.terminal_update(update)
            case "terminal_output_chunk":
                return self.tool_calls.terminal_chunk(update)
            case "plan_update":
                return self.plans.update(update)
            case "plan_removed":
                return self.plans.removed(update)
            case "available_commands_update":
                commands = self.commands(update.get("availableCommands"))
                return [{**update, "availableCommands": commands}]
            case "config_option_update":
                return self._options(update)
            case "notice":
                return [update] if self.features.notices else [_notice_as_text(update)]
            case "prompt_suggestions_update":
                return [convert_suggestions(update, 1)] if self.features.suggestions else []
            case "cursor_update":
                return [update] if self.features.cursors else []
            case kind if kind in _COMPACTION:
                return [_converted_blocks(update)] if self.features.compaction else []
            case kind if kind in _SUBAGENTS:
                return [_converted_blocks(update)] if self.features.subagents else []
        return [update]

    def setup_result(self, result: Json) -> Json:
        """The result of a set-up of the session; commands are an update in version 1."""
        changed = without(result, "availableCommands")
        if "configOptions" not in changed:
            return changed
        changed["configOptions"] = self.options(changed["configOptions"])
        if self.mode is not None:
            changed["modes"] = modes_of_option(self.mode)
        return changed

    def commands(self, commands: Any) -> list[Json]:
        """Commands of version 1, from all commands and skills of version 2."""
        entries = objects(commands)
        self.skills = frozenset(
            str(each.get("name")) for each in entries if each.get("type") == "skill"
        )
        return convert_commands(entries, 1)

    def prompt(self, blocks: Any) -> Any:
        """The blocks of a prompt in version 2. The command of a skill is its block, which has to be
        the first; proxies may have put texts before the command."""
        converted = convert_blocks(blocks, 2)
        for index, block in enumerate(objects(converted) if self.skills else ()):
            found = _COMMAND.fullmatch(str(block.get("text")))
            if found is not None and found[1] in self.skills:
                rest = [{**block, "text": found[2]}] if found[2] else []
                skill = {"type": "skill", "name": found[1]}
                return [skill, *converted[:index], *rest, *converted[index + 1 :]]
        return converted

    def options(self, options: Any) -> list[Json]:
        """Options of version 1, from all those of version 2."""
        listed = options if isinstance(options, list) else []
        self.mode = mode_option([each for each in listed if isinstance(each, dict)])
        converted = convert_options(listed, 1)
        if not self.features.boolean_options:
            converted = [each for each in converted if each.get("type") != "boolean"]
        return converted

    def _options(self, update: Json) -> list[Json]:
        before = self.mode
        updates = [{**update, "configOptions": self.options(update.get("configOptions"))}]
        mode = self.mode.get("currentValue") if self.mode is not None else None
        if mode is not None and (before is None or mode != before.get("currentValue")):
            updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        return updates


def _notice_as_text(notice: Json) -> Json:
    meta = {"_meta": notice["_meta"]} if "_meta" in notice else {}
    content = text_block(notice_text(notice))
    return {"sessionUpdate": "agent_message_chunk", "content": content, **meta}


def _converted_blocks(update: Json) -> Json:
    """With the content blocks of version 1, in any member that has blocks."""
    changed = dict(update)
    if update.get("sessionUpdate") == "compaction_update" and update.get("status") is None:
        changed["status"] = "in_progress"
    for name in ("content", "summary"):
        if isinstance(changed.get(name), list):
            changed[name] = convert_blocks(changed[name], 1)
        elif isinstance(changed.get(name), dict):
            changed[name] = convert_blocks([changed[name]], 1)[0]
    return changed


# -- messages --------------------------------------------------------------------------------------


@attrs.define
class _Sent:
    """The part of a message that a client of version 1 has received."""

    text: str = ""
    replacement: int = 0
    """The number of the replacement that it is; each has an id of its own there."""

    def named(self, update: Json) -> Json:
        """An update of the message with its id there."""
        id = update.get("messageId")
        if not self.replacement or not isinstance(id, str):
            return update
        return {**update, "messageId": f"{id}#{self.replacement}"}


@attrs.define
class MessagesToV1:
    """Converts the messages of one session to version 1."""

    _sent: BoundedDict[str, _Sent] = attrs.field(
        factory=lambda: BoundedDict(_MAX_MESSAGES), init=False
    )
    _replaced: int = attrs.field(default=0, init=False)

    def chunk(self, update: Json) -> list[Json]:
        """The chunk of version 1 for one of version 2."""
        sent = self._sent.setdefault(str(update.get("messageId")), _Sent())
        sent.text += _as_text(update.get("content"))
        return [{**sent.named(update), "content": convert_block(update.get("content"), 1)}]

    def whole(self, update: Json) -> list[Json]:
        """Chunks for a whole-message update.

        Only what is new if the message begins with what was sent, else everything, as another
        message. A client of version 1 cannot clear a message.
        """
        key, blocks = str(update.get("messageId")), objects(update.get("content"))
        sent = self._sent.setdefault(key, _Sent())
        if not blocks:
            return []
        text = "".join(map(_as_text, blocks))
        if not text.startswith(sent.text):
            self._replaced += 1
            sent = self._sent[key] = _Sent(replacement=self._replaced)
        left = _behind(blocks, len(sent.text))
        sent.text = text
        kind = f"{update['sessionUpdate']}_chunk"
        base = {**without(sent.named(update), "content"), "sessionUpdate": kind}
        return [{**base, "content": convert_block(block, 1)} for block in left]


def _as_text(block: Any) -> str:
    """A block as text: equal blocks, and texts cut at any place, are equal."""
    if isinstance(block, dict) and block.get("type") == "text":
        return str(block.get("text"))
    return "\0" + json.dumps(block, sort_keys=True) + "\0"


def _behind(blocks: list[Json], length: int) -> list[Json]:
    """The blocks without the first characters."""
    left: list[Json] = []
    for block in blocks:
        size = len(_as_text(block))
        if length <= 0:
            left.append(block)
        elif size > length:  # only a text is ever cut
            left.append({**text_block(""), **block, "text": str(block.get("text"))[length:]})
        length -= size
    return left


# -- plans -----------------------------------------------------------------------------------------


@attrs.define
class PlansToV1:
    """Converts the plans of one session to version 1. `knows_ids`: the client announces `plan`."""

    knows_ids: bool
    _shown: str = attrs.field(default="", init=False)
    """The plan that the client shows, if it shows only one."""

    def update(self, update: Json) -> list[Json]:
        plan = update.get("plan")
        if not isinstance(plan, dict):
            return []
        kind = plan.get("type")
        if kind == "items":
            plan = each(plan, "entries", _entry)
        is_main = kind == "items" and plan.get("planId") == MAIN_PLAN
        if self.knows_ids and kind in _PLANS and not is_main:
            return [{**update, "plan": plan}]
        self._shown = str(plan.get("planId"))
        entries = plan.get("entries") if kind == "items" else [_as_entry(plan)]
        base = {**without(update, "plan"), "sessionUpdate": "plan"}
        return [{**base, "entries": entries if isinstance(entries, list) else []}]

    def removed(self, update: Json) -> list[Json]:
        if self.knows_ids and update.get("planId") != MAIN_PLAN:
            return [update]
        if update.get("planId") != self._shown:
            return []
        return [{**without(update, "planId"), "sessionUpdate": "plan", "entries": []}]


def _entry(entry: Json) -> Json:
    changed = dict(entry)
    status = entry.get("status")
    if status == "cancelled":
        changed["content"] = f"{entry.get('content')} (cancelled)"
    changed["status"] = known(
        status, ENTRY_STATUSES, "completed" if status == "cancelled" else "pending"
    )
    changed["priority"] = known(entry.get("priority"), PRIORITIES, "medium")
    return changed


def _as_entry(plan: Json) -> Json:
    """One entry for a plan of another type than a list."""
    text: Any = plan.get("content") or plan.get("uri") or f"[a plan of type {plan.get('type')}]"
    return {"content": str(text), "priority": "medium", "status": "in_progress"}
