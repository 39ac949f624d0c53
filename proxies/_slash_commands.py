"""Slash commands that a proxy answers itself: advertised to the client, never seen by the agent.

A command is not a prompt turn. For proxies nearer the client, commands and their responses carry a
mark, `acp-conductor/handled` in `_meta`:

- the `initialize` result lists the names under that key, for use before the agent announces its
  commands;
- announced commands of proxies have the mark (`true`), the agent's do not;
- the response to the prompt has it, and in version 2 the state updates around it.

An agent cannot write the mark: the conductor removes it from what agents send.

A name that a component nearer the agent has announced is not used: `context` becomes `acp:context`.

A turn ends with the response to the prompt in protocol version 1, with a later update in version 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from conductor.proxy import ClientPeer

__all__ = [
    "HANDLED_KEY",
    "AnnouncedCommands",
    "SlashCommand",
    "SlashCommands",
    "answer",
    "is_handled",
    "say",
]

HANDLED_KEY: Final = "acp-conductor/handled"
"""Member of `_meta` that marks the commands of proxies, and the responses to them."""

_MARK: Final = {HANDLED_KEY: True}
_ids: Iterator[int] = itertools.count(1)


@attrs.frozen
class SlashCommand:
    """One command: `/name` and its description."""

    name: str
    description: str


@attrs.define
class AnnouncedCommands:
    """The commands of one session that components nearer the agent have announced."""

    by_proxies: frozenset[str] | None = None
    """`None`: nothing has been announced yet."""
    by_agent: frozenset[str] = frozenset()

    def read(self, holder: Mapping[str, Any]) -> None:
        """Read the list in `holder`, an update or a version 2 session's result."""
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for command in holder.get("availableCommands") or ():
            names[is_handled(command)].add(str(command.get("name")))
        self.by_proxies, self.by_agent = frozenset(names[True]), frozenset(names[False])


@attrs.define
class SlashCommands:
    """A proxy's own command, and those of proxies nearer the agent."""

    own: SlashCommand | None = None
    _initial: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Commands of proxies in the `initialize` result, for sessions without announced commands."""

    def initialized(self, result: dict[str, Any]) -> dict[str, Any]:
        """Read the result of `initialize`; return it with the proxy's own command."""
        meta = result.get("_meta") or {}
        listed = meta.get(HANDLED_KEY)
        names = [name for name in listed if isinstance(name, str)] if type(listed) is list else []
        self._initial = frozenset(names)
        if self.own is None:
            return result
        return {**result, "_meta": {**meta, HANDLED_KEY: [*names, self._name(AnnouncedCommands())]}}

    def announced(self, holder: dict[str, Any], announced: AnnouncedCommands) -> dict[str, Any]:
        """Read `holder`, an update or a version 2 session's result; return it with the proxy's
        command added."""
        announced.read(holder)
        if self.own is None:
            return holder
        command = {
            "name": self._name(announced),
            "description": self.own.description,
            "_meta": _MARK,
        }
        return {**holder, "availableCommands": [*(holder.get("availableCommands") or ()), command]}

    def calls_own(self, params: dict[str, Any], announced: AnnouncedCommands) -> bool:
        """Whether a prompt is the proxy's own command."""
        return self.own is not None and _command_called(params) == self._name(announced)

    def calls_other(self, params: dict[str, Any], announced: AnnouncedCommands) -> bool:
        """Whether a prompt is a command that a proxy nearer the agent answers, so no turn."""
        return _command_called(params) in self._by_proxies(announced)

    def _by_proxies(self, announced: AnnouncedCommands) -> frozenset[str]:
        return self._initial if announced.by_proxies is None else announced.by_proxies

    def _name(self, announced: AnnouncedCommands) -> str:
        """The first name that is not taken: `context`, `acp:context`, `acp:context-2`, …"""
        assert self.own is not None
        name, taken = self.own.name, self._by_proxies(announced) | announced.by_agent
        prefixed = (f"acp:{name}-{number}" for number in itertools.count(2))
        return next(n for n in itertools.chain([name, f"acp:{name}"], prefixed) if n not in taken)


def is_handled(holder: Mapping[str, Any]) -> bool:
    """Whether a command, a response or an update has the mark of a proxy."""
    meta = holder.get("_meta")
    return isinstance(meta, dict) and meta.get(HANDLED_KEY) is True


def _command_called(params: dict[str, Any]) -> str | None:
    """Return the command in the last text block of a prompt: proxies put theirs before it."""
    texts = [block.get("text") for block in params["prompt"] if block.get("type") == "text"]
    words = texts[-1].split(maxsplit=1) if texts and isinstance(texts[-1], str) else ()
    return words[0][1:] if words and words[0].startswith("/") else None


async def answer(
    client: ClientPeer,
    params: dict[str, Any],
    text: str,
    *,
    version: int,
    stop_reason: str = "end_turn",
) -> dict[str, Any]:
    """Send `text` as the only message of a prompt; return the result of the prompt."""
    session_id = params["sessionId"]
    if version == 1:
        await say(client, session_id, text, version=1)
        return {"stopReason": stop_reason, "_meta": _MARK}

    async def update(kind: str, **members: Any) -> None:
        await client.update(session_id, {"sessionUpdate": kind, **members})

    prompt_id = f"conductor-prompt-{next(_ids)}"
    await update("user_message", messageId=prompt_id, content=params["prompt"])
    await update("state_update", state="running", _meta=_MARK)
    await say(client, session_id, text, version=version)
    await update("state_update", state="idle", stopReason=stop_reason, _meta=_MARK)
    return {"messageId": prompt_id, "_meta": _MARK}


async def say(client: ClientPeer, session_id: str, text: str, *, version: int) -> None:
    """Send a text as a separate message."""
    if version == 1:
        await client.say(session_id, text)
        return
    content = [{"type": "text", "text": text}]
    id = f"conductor-message-{next(_ids)}"
    await client.update(
        session_id, {"sessionUpdate": "agent_message", "messageId": id, "content": content}
    )
