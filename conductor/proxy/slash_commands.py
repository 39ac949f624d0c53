"""Slash commands that a proxy answers: announced to the client, never forwarded to the agent.

A command is not a prompt turn. For proxies nearer the client, commands and their responses carry
the mark `acp-conductor/handled` in `_meta`:

- the result of `initialize` lists the names under that key, for the time before the agent has
  announced its commands;
- announced commands have the mark (`true`), those of the agent do not;
- the response to the prompt has it, and in version 2 the state updates around it.

An agent cannot write the mark: the conductor removes it from the messages of agents.

If a component nearer the agent has announced the name of a command, the command gets another one:
`context` is then announced and answered as `acp:context`.

To the client, the answer to a command is a whole turn (`answer`): in version 1 of the protocol a
text and the response to the prompt; in version 2 the prompt as a message, the state `running`, the
text and the state `idle`, all of them before the response.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.proxy.peers import ClientPeer, check_text

__all__ = [
    "HANDLED_KEY",
    "AnnouncedCommands",
    "SlashCommand",
    "SlashCommands",
    "answer",
    "is_handled",
    "is_slash_command",
    "say",
]

HANDLED_KEY: Final = "acp-conductor/handled"
"""Member of `_meta` that marks the commands of proxies and their responses."""

_MARK: Final = {HANDLED_KEY: True}
_ids: Iterator[int] = itertools.count(1)
_slash_first: Final = re.compile(
    rb'"(?=[\x00-\x20/\\\x80-\xff])(?:[\x00-\x20\x80-\xff]++|\\[nrtf])*+(?:\\?/|\\u)'
)
"""The start of a JSON string that may begin with a slash, after white space; an escape by number
may be either. Takes time linear in the text: 0.1 ms for 1 MiB of prose."""


_command_name: Final = re.compile(r"\s*/([^\s/*]\S*)")


@attrs.frozen
class SlashCommand:
    """One command: `/name` and its description."""

    name: str
    description: str


@attrs.define
class AnnouncedCommands:
    """The commands of one session, as announced by the components nearer the agent."""

    is_known: bool = False
    """Whether a list has been announced."""
    by_proxies: frozenset[str] = frozenset()
    by_agent: frozenset[str] = frozenset()
    listed: Sequence[Any] = ()
    """The last announced list."""

    def read(self, holder: Mapping[str, Any]) -> None:
        """Read the list in `holder`: an update, or in version 2 the result of a session set-up."""
        listed = holder.get("availableCommands")
        self.is_known, self.listed = True, listed if isinstance(listed, list) else ()
        commands = [each for each in self.listed if type(each) is dict]
        self.by_proxies = frozenset(str(c.get("name")) for c in commands if is_handled(c))
        self.by_agent = frozenset(str(c.get("name")) for c in commands if not is_handled(c))


@attrs.define
class SlashCommands:
    """The commands of a proxy, and those of proxies nearer the agent."""

    own: Sequence[SlashCommand] = ()
    _initial: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Commands of proxies, for sessions in which nothing has been announced yet."""

    def initialized(self, result: dict[str, Any]) -> dict[str, Any]:
        """Read the result of `initialize`; return it with the names of the proxy's own commands."""
        meta = result.get("_meta") or {}
        listed = meta.get(HANDLED_KEY)
        names = [name for name in listed if isinstance(name, str)] if type(listed) is list else []
        self._initial = frozenset(names)
        if not self.own:
            return result
        return {
            **result,
            "_meta": {**meta, HANDLED_KEY: [*names, *self._names(AnnouncedCommands())]},
        }

    def with_own(self, holder: dict[str, Any], announced: AnnouncedCommands) -> dict[str, Any]:
        """Read the list in `holder` into `announced`; return `holder` with the proxy's own commands
        added. It is an update, or in version 2 the result of a session set-up."""
        announced.read(holder)
        return holder if not self.own else {**holder, **self.listing(announced)}

    def listing(self, announced: AnnouncedCommands) -> dict[str, Any]:
        """The member `availableCommands`: the commands announced so far, and the proxy's own."""
        own = [
            {"name": name, "description": command.description, "_meta": _MARK}
            for name, command in self._names(announced).items()
        ]
        return {"availableCommands": [*announced.listed, *own]}

    def called(
        self, prompt: Sequence[Any], announced: AnnouncedCommands
    ) -> tuple[SlashCommand, str] | None:
        """The own command that a prompt calls, with its arguments; `None` if it calls none."""
        word, arguments = _command_line(prompt)
        command = self._names(announced).get(word)
        return None if command is None else (command, arguments)

    def calls_other(self, prompt: Sequence[Any], announced: AnnouncedCommands) -> bool:
        """Whether a prompt calls a command of a proxy nearer the agent: it is not a turn."""
        return _command_line(prompt)[0] in self._by_proxies(announced)

    def may_call(self, raw: bytes | None, announced: AnnouncedCommands) -> bool:
        """Whether the raw JSON of a prompt may call a command of a proxy. If not, the prompt, which
        can be large, need not be decoded."""
        if raw is None or _slash_first.search(raw) is None:
            return False
        names = [*self._names(announced), *self._by_proxies(announced)]
        return raw.find(b"\\u00") >= 0 or any(raw.find(b"/" + n.encode()) >= 0 for n in names)

    def _by_proxies(self, announced: AnnouncedCommands) -> frozenset[str]:
        return announced.by_proxies if announced.is_known else self._initial

    def _names(self, announced: AnnouncedCommands) -> dict[str, SlashCommand]:
        """The own commands by the first name that is free: `context`, `acp:context`,
        `acp:context-2`, …"""
        taken = self._by_proxies(announced) | announced.by_agent
        named: dict[str, SlashCommand] = {}
        for command in self.own:
            prefixed = (f"acp:{command.name}-{number}" for number in itertools.count(2))
            names = itertools.chain([command.name, f"acp:{command.name}"], prefixed)
            named[next(name for name in names if name not in taken and name not in named)] = command
        return named


def is_slash_command(prompt: Sequence[Any], announced: Collection[str] = ()) -> bool:
    """Whether a prompt is a slash command: its first text begins with `/name`.

    Agents look at the first block, at the first text, or at all texts joined: with anything before
    it, a command is sent to the model as text. The name need not be one of `announced`, because
    agents have commands that they do not announce, and announce them late. But a word with another
    slash is a path, such as `/etc/hosts`, unless a command of this name is announced.
    """
    for block in prompt:
        if isinstance(block, dict) and block.get("type") == "text":
            text = block.get("text")
            if not isinstance(text, str):
                return False
            if found := _command_name.match(text[:_MAX_LEADING_SPACE]):
                return "/" not in found[1] or found[1] in announced
            if text and not text.isspace():
                return False
    return False


def is_handled(holder: Mapping[str, Any]) -> bool:
    """Whether a command, a response or an update has the mark of a proxy."""
    meta = holder.get("_meta")
    return isinstance(meta, dict) and meta.get(HANDLED_KEY) is True


def _command_line(prompt: Sequence[Any]) -> tuple[str, str]:
    """The command and its arguments in the last text of a prompt, without the slash; both empty if
    it is not a command. Proxies put their own texts before the user's."""
    texts = [
        block.get("text")
        for block in prompt
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    if not texts or not isinstance(texts[-1], str):
        return "", ""
    head = texts[-1][:_MAX_LEADING_SPACE].lstrip()
    if not head.startswith("/"):
        return "", ""
    word, *rest = texts[-1].split(maxsplit=1)
    return word[1:], rest[0].strip() if rest else ""


_MAX_LEADING_SPACE: Final = 1000
"""Characters of white space before a slash that are skipped."""


async def answer(
    client: ClientPeer,
    session_id: str,
    prompt: Sequence[Any],
    text: str,
    *,
    version: int,
    stop_reason: str = "end_turn",
    in_turn: bool = False,
    counts: bool = False,
    as_notice: bool = False,
) -> dict[str, Any]:
    """Show `text` as the whole turn of a prompt, and return the result of `session/prompt`.

    `in_turn`: a turn of the agent runs; in version 2 its state is left as it is. `counts`: it is a
    turn for other proxies, and is not marked. `as_notice`: it is not an answer of the agent.
    """
    mark = {} if counts else {"_meta": _MARK}

    async def update(kind: str, **members: Any) -> None:
        await client.update(session_id, {"sessionUpdate": kind, **members})

    async def show() -> None:
        if as_notice:
            await update("notice", severity="warning", title=text)
        elif text:
            await say(client, session_id, text, version=version)

    if version == 1:
        await show()
        return {"stopReason": stop_reason, **mark}
    prompt_id = f"conductor-prompt-{next(_ids)}"
    await update("user_message", messageId=prompt_id, content=list(prompt))
    if not in_turn:
        await update("state_update", state="running", **mark)
    await show()
    if not in_turn:
        await update("state_update", state="idle", stopReason=stop_reason, **mark)
    return {"messageId": prompt_id, **mark}


async def say(client: ClientPeer, session_id: str, text: str, *, version: int) -> None:
    """Send a text as a separate message of the agent."""
    check_text(text, "say()")
    if version == 1:
        await client.say(session_id, text)
        return
    content = [{"type": "text", "text": text}]
    id = f"conductor-message-{next(_ids)}"
    await client.update(
        session_id, {"sessionUpdate": "agent_message", "messageId": id, "content": content}
    )
