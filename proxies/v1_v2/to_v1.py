"""One session of an agent of version 2, for a client of version 1. Pure.

`convert` returns the updates of version 1 that show an update of version 2, none if the client
cannot show it. State updates are none: they end turns, which `v1_v2` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from proxies.shared.client_texts import notice_text
from proxies.v1_v2.content import convert_blocks, convert_suggestions
from proxies.v1_v2.kept_content import KeptContent
from proxies.v1_v2.members import Json, objects, text_block, without
from proxies.v1_v2.messages import MessagesToV1
from proxies.v1_v2.plans import PlansToV1
from proxies.v1_v2.sessions import convert_commands, convert_options, mode_option, modes_of_option
from proxies.v1_v2.tool_calls import ToolCallsToV1

__all__ = ["SessionToV1", "V1Features"]

_COMMAND = re.compile(r"/(\S+)\s*(.*)", re.DOTALL)
_SUBAGENTS = ("subagent_update", "session_message", "session_message_chunk")
_COMPACTION = ("compaction_update", "compaction_summary_chunk")


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
    def announced(cls, params: Mapping[str, Any]) -> V1Features:
        """From the params of `initialize`."""
        capabilities = params.get("clientCapabilities")

        def has(*path: str) -> bool:
            value = capabilities
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            return isinstance(value, dict)

        return cls(
            plans=has("plan"),
            notices=has("session", "notices"),
            compaction=has("session", "compaction"),
            subagents=has("subagents"),
            boolean_options=has("session", "configOptions", "boolean"),
            suggestions=has("session", "promptSuggestions"),
            cursors=has("session", "cursors"),
        )


@attrs.define
class SessionToV1:
    """Converts the updates and results of one session."""

    features: V1Features
    kept: KeptContent = attrs.field(factory=KeptContent)
    messages: MessagesToV1 = attrs.field(factory=MessagesToV1, init=False)
    tool_calls: ToolCallsToV1 = attrs.field(init=False)
    plans: PlansToV1 = attrs.field(init=False)
    mode: Json | None = attrs.field(default=None, init=False)
    """The option of version 2 that is the mode."""
    skills: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Names of the skills, which the client has as commands."""

    def __attrs_post_init__(self) -> None:
        self.tool_calls = ToolCallsToV1(self.kept, self.features.subagents)
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
                return [update] if self.features.notices else [_as_text(update)]
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


def _as_text(notice: Json) -> Json:
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
