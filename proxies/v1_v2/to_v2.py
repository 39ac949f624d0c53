"""One session of an agent of version 1, for a client of version 2. Pure.

`convert` returns the updates of version 2 for an update of version 1. Chunks get message ids, which
version 1 may leave out; modes become an option, the plan that of the id `main`.
"""

from __future__ import annotations

from typing import Any

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.v1_v2.known_values import convert_block, convert_suggestions
from proxies.v1_v2.members import MAIN_PLAN, Json, without
from proxies.v1_v2.sessions import (
    convert_commands,
    convert_options,
    mode_option,
    option_of_modes,
    with_value,
)
from proxies.v1_v2.tool_calls import permission_to_v2, tool_call_to_v2

__all__ = ["SessionToV2"]

_CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_MAX_TITLES = 1000
"""Titles of tool calls of a session that are remembered for permission requests."""


@attrs.define
class SessionToV2:
    """Converts the updates, results and permission requests of one session."""

    messages: MessagesToV2 = attrs.field(factory=lambda: MessagesToV2(), init=False)
    options: list[Json] = attrs.field(factory=list, init=False)
    """All options, of version 2."""
    modes_option: Json | None = attrs.field(default=None, init=False)
    """The option made of the agent's modes; it is one of `options`."""
    _echoes: bool = attrs.field(default=False, init=False)
    """Whether what the agent says of the user is the prompt, which the client knows."""
    _titles: BoundedDict[str, str] = attrs.field(
        factory=lambda: BoundedDict(_MAX_TITLES), init=False
    )

    def convert(self, update: Json) -> list[Json]:
        """The updates of version 2 for one of version 1."""
        kind = update.get("sessionUpdate")
        if kind == "user_message_chunk" and self._echoes:
            return []
        if kind in _CHUNKS:
            self._echoes = False
            return [self.messages.chunk(update)]
        match kind:
            case "tool_call" | "tool_call_update":
                self.messages.interrupt()
                self._remember(update)
                return [tool_call_to_v2(update)]
            case "plan":
                self.messages.interrupt()
                return [_plan(update)]
            case "available_commands_update":
                commands = convert_commands(update.get("availableCommands"), 2)
                return [{**update, "availableCommands": commands}]
            case "prompt_suggestions_update":
                return [convert_suggestions(update, 2)]
            case "config_option_update":
                return [{**update, "configOptions": self.options_of(update.get("configOptions"))}]
            case "current_mode_update":
                return self._mode(update)
            case "state_update":  # not of version 1: the states of turns are made from its prompts
                return []
        return [update]

    def turn_started(self) -> str:
        """Begin the turn of a prompt; returns the id of the user's message."""
        self._echoes = True
        return self.messages.new_id()

    def turn_ended(self) -> None:
        self._echoes = False
        self.messages.interrupt()

    def setup_result(self, result: Json) -> Json:
        """The result of a set-up of the session."""
        changed = without(result, "modes")
        converted = convert_options(result.get("configOptions"), 2)
        self.modes_option = option_of_modes(result.get("modes"), converted)
        options = self.options_of(result.get("configOptions"))
        if options or "configOptions" in result:
            changed["configOptions"] = options
        return changed

    def options_of(self, options: Any) -> list[Json]:
        """All options of version 2, from those of version 1."""
        converted = convert_options(options, 2)
        if self.modes_option is not None and mode_option(converted) is None:
            converted.append(self.modes_option)
        self.options = converted
        return converted

    def mode_set(self, mode: Any) -> list[Json]:
        """All options after the agent has changed its mode."""
        if self.modes_option is not None:
            self.modes_option = {**self.modes_option, "currentValue": mode}
        option = mode_option(self.options)
        if option is not None:
            self.options = with_value(self.options, str(option.get("configId")), mode)
        return self.options

    def permission(self, params: Json) -> Json:
        """The params of `session/request_permission`."""
        call = params.get("toolCall")
        title = None
        if isinstance(call, dict):
            title = self._titles.get(str(call.get("toolCallId")))
            self._remember(call)
        return permission_to_v2(params, title)

    def _mode(self, update: Json) -> list[Json]:
        if not self.mode_set(update.get("currentModeId")):
            return []
        base = without(update, "currentModeId", "sessionUpdate")
        return [{**base, "sessionUpdate": "config_option_update", "configOptions": self.options}]

    def _remember(self, call: Json) -> None:
        if isinstance(title := call.get("title"), str):
            self._titles[str(call.get("toolCallId"))] = title


def _plan(update: Json) -> Json:
    """The `plan_update` for a `plan`."""
    plan = {"type": "items", "planId": MAIN_PLAN, "entries": update.get("entries", [])}
    return {
        **without(update, "entries", "sessionUpdate"),
        "sessionUpdate": "plan_update",
        "plan": plan,
    }


@attrs.define
class MessagesToV2:
    """Gives the chunks of one session the ids that version 2 requires.

    Chunks without an id that follow each other are one message, as clients of version 1 show them.
    """

    _kind: str = attrs.field(default="", init=False)
    _number: int = attrs.field(default=0, init=False)

    def chunk(self, update: Json) -> Json:
        kind = str(update.get("sessionUpdate"))
        block = update.get("content")
        if (converted := convert_block(block, 2)) is not block:
            update = {**update, "content": converted}
        if isinstance(update.get("messageId"), str):
            self._kind = ""
            return update
        if kind != self._kind:
            self._kind = kind
            self._number += 1
        return {**update, "messageId": f"message-{self._number}"}

    def new_id(self) -> str:
        """The id of a further message."""
        self.interrupt()
        self._number += 1
        return f"message-{self._number}"

    def interrupt(self) -> None:
        """Begin another message with the next chunk: a turn or a tool call is in between."""
        self._kind = ""
