"""The language of the test agent's prompts: one command per line, `NAME ARGUMENTS…`.

A prompt that does not begin with a command is repeated back. `help` prints the table. A command
that fails (the client refuses a file, a tool fails) reports the error as text, and the turn
continues.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import attrs
import trio

from conductor.error_codes import INTERNAL_ERROR
from conductor.proxy import RequestError
from conductor.proxy.peers import Peer
from conductor.testing import updates
from conductor.testing.mcp_client import McpServer, McpServerFailure

__all__ = [
    "COMMANDS",
    "CommandSession",
    "CommandTurn",
    "PromptCommand",
    "StopTurn",
    "command_text",
    "perform",
]

_CHUNKS_PER_STEP: Final = 32
"""Chunks that `stream` sends between two checkpoints, at which it can be cancelled."""
_PERMISSIONS: Final = [
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]


class StopTurn(Exception):
    """Ends the turn with a stop reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@attrs.define(eq=False)
class CommandSession:
    """State of one session of the test agent."""

    id: str
    cwd: str
    mode: str = "ask"
    turn: trio.CancelScope | None = None
    turns: int = 0
    history: list[dict[str, Any]] = attrs.field(factory=list)
    """The updates that `session/load` replays."""
    servers: dict[str, McpServer] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    """MCP servers that did not start: reason by name."""
    closed: trio.Event = attrs.field(factory=trio.Event)

    def remember(self, kind: str, text: str) -> None:
        self.history.append(updates.chunk(text, kind))

    def close(self) -> None:
        self.closed.set()
        self.servers.clear()
        self.broken.clear()

    def reopen(self) -> None:
        """Stop the servers of an earlier set-up of this session."""
        self.close()
        self.closed = trio.Event()


@attrs.define(eq=False)
class CommandTurn:
    """One prompt turn, with helpers to send its updates in both protocol versions."""

    client: Peer
    session: CommandSession
    version: updates.Version
    prompt: Sequence[Mapping[str, Any]]
    text: str
    """The text of the prompt that has the commands."""
    alone: bool
    crash: Callable[[], None]
    wait_room: Callable[[], Awaitable[None]]
    calls: int = 0

    @property
    def prompt_id(self) -> str:
        return f"message-{2 * self.session.turns - 1}"

    async def update(self, update: Mapping[str, Any]) -> None:
        await self.client.notify("session/update", updates.params(self.session.id, update))

    async def chunk(self, text: str, kind: str = "agent_message_chunk") -> None:
        members = {} if self.version == 1 else {"messageId": f"message-{2 * self.session.turns}"}
        await self.update(updates.chunk(text, kind, **members))

    async def say(self, text: str) -> None:
        """Send a message chunk, and record it for `session/load`."""
        self.session.remember("agent_message_chunk", text)
        await self.chunk(text)

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self.client.request(method, {"sessionId": self.session.id, **params})

    async def begin_tool(
        self, title: str, kind: str = "other", more: Mapping[str, Any] | None = None
    ) -> str:
        """Announce a tool call, with further members of the update; returns its id."""
        self.calls += 1
        id = f"call-{self.session.turns}-{self.calls}"
        members = {"kind": kind, **(more or {})}
        await self.update(updates.tool_call(id, title, version=self.version, **members))
        return id

    async def tool(self, id: str, status: str, text: str | None = None) -> None:
        await self.update(updates.tool_call_update(id, status, text))

    def path(self, path: str) -> str:
        return os.path.join(self.session.cwd, path)


Function: TypeAlias = Callable[[CommandTurn, str], Awaitable[None]]


class UsageError(Exception):
    """The arguments of a command are wrong."""


@attrs.frozen
class PromptCommand:
    """One command, with its arguments and description for `help`."""

    name: str
    arguments: str
    about: str
    function: Function


COMMANDS: Final[dict[str, PromptCommand]] = {}


def _command(usage: str, about: str) -> Callable[[Function], Function]:
    name, _, arguments = usage.partition(" ")

    def add(function: Function) -> Function:
        COMMANDS[name] = PromptCommand(name, arguments, about, function)
        return function

    return add


def command_text(prompt: Sequence[Mapping[str, Any]]) -> str:
    """The text of a prompt that has the commands: its last text block that begins with one, so that
    a proxy may put text before and after it. Without any command: its last text block."""
    texts = [str(each.get("text", "")).strip() for each in prompt if each.get("type") == "text"]
    return next(filter(_begins_with_command, reversed(texts)), texts[-1] if texts else "")


def _begins_with_command(text: str) -> bool:
    first = text.split(maxsplit=1)
    return bool(first) and first[0] in COMMANDS


async def perform(turn: CommandTurn) -> None:
    """Run the commands of the prompt. `StopTurn`, and `RequestError` of `fail`, end the turn."""
    first = turn.text.split(maxsplit=1)
    if not _begins_with_command(turn.text):
        await turn.say(f"You said: {turn.text}" if first else "You said nothing. Try `help`.")
        return
    for line in filter(None, map(str.strip, turn.text.splitlines())):
        name, _, arguments = line.partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            await turn.say(f"There is no command {name!r}. Try `help`.\n")
            continue
        try:
            await command.function(turn, arguments.strip())
        except UsageError:
            await turn.say(f"usage: {command.name} {command.arguments}\n")


@_command("help", "list the commands")
async def _help(turn: CommandTurn, _: str) -> None:
    rows = [(f"{each.name} {each.arguments}", each.about) for each in COMMANDS.values()]
    width = max(len(usage) for usage, _ in rows)
    table = "".join(f"{usage:{width}}  {about}\n" for usage, about in rows)
    await turn.say(f"```text\n{table}```\n")  # clients show Markdown


@_command("say TEXT", "say TEXT")
async def _say(turn: CommandTurn, text: str) -> None:
    await turn.say(text)


@_command("echo", "say the prompt, as content blocks in JSON")
async def _echo(turn: CommandTurn, _: str) -> None:
    await turn.say(json.dumps(turn.prompt, ensure_ascii=False))


@_command("think TEXT", "think TEXT")
async def _think(turn: CommandTurn, text: str) -> None:
    await turn.chunk(text, "agent_thought_chunk")


@_command("stream N [SIZE]", "say N chunks of SIZE characters (16)")
async def _stream(turn: CommandTurn, arguments: str) -> None:
    count, size = _integers(arguments, 1, 16)
    text = ("0123456789abcdef" * (size // 16 + 1))[:size]
    for number in range(count):
        if number % _CHUNKS_PER_STEP == 0:
            await trio.lowlevel.checkpoint()
            await turn.wait_room()
        await turn.chunk(text)


@_command("ask [TITLE] [kind=KIND] [path=PATH]... [command=COMMAND]", "ask for permission")
async def _ask(turn: CommandTurn, arguments: str) -> None:
    title, given = _details(arguments, "kind", "path", "command")
    title = title or "Do something"
    more: dict[str, Any] = {}
    if paths := given["path"]:
        more["locations"] = [{"path": turn.path(path)} for path in paths]
    if commands := given["command"]:
        more["rawInput"] = {"command": commands[-1]}
    kind = (given["kind"] or ["execute" if commands else "edit"])[-1]
    id = await turn.begin_tool(title, kind, more)
    call = {"toolCallId": id, "title": title, "kind": kind, "status": "pending", **more}
    params: dict[str, Any] = {"options": _PERMISSIONS}
    if turn.version == 1:
        params["toolCall"] = call
    else:
        params |= {"title": title, "subject": {"type": "tool_call", "toolCall": call}}
    try:
        answer = await turn.request("session/request_permission", params)
        outcome = answer["outcome"]
        allowed = outcome.get("optionId") in ("allow", "always")
        said = outcome.get("optionId", outcome["outcome"])
    except RequestError as exc:
        allowed, said = False, str(exc)
    await turn.tool(id, "completed" if allowed else "failed")
    await turn.say(f"{title}: {said}\n")


@_command("read PATH [LINE [LIMIT]]", "say a file that the client reads")
async def _read(turn: CommandTurn, arguments: str) -> None:
    words = _split_words(arguments, 1, 3)
    line, limit = _integers(" ".join(words[1:]), 0, 0)
    params: dict[str, Any] = {"path": turn.path(words[0])}
    params |= {"line": line} if line else {}
    params |= {"limit": limit} if limit else {}
    try:
        result = await turn.request("fs/read_text_file", params)
    except RequestError as exc:
        await turn.say(f"cannot read {words[0]}: {exc}\n")
    else:
        await turn.say(result["content"])


@_command("write PATH TEXT", "have the client write a file")
async def _write(turn: CommandTurn, arguments: str) -> None:
    path, _, text = arguments.partition(" ")
    if not path:
        raise UsageError
    try:
        await turn.request("fs/write_text_file", {"path": turn.path(path), "content": text})
    except RequestError as exc:
        await turn.say(f"cannot write {path}: {exc}\n")
    else:
        await turn.say(f"wrote {path}\n")


@_command("plan STEP[; STEP]...", "make a plan and carry it out")
async def _plan(turn: CommandTurn, steps: str) -> None:
    names = [step.strip() for step in steps.split(";") if step.strip()]
    if not names:
        raise UsageError
    for done in range(len(names) + 1):
        entries = [
            {"content": name, "priority": "medium", "status": _status(index, done)}
            for index, name in enumerate(names)
        ]
        await turn.update(updates.plan(*entries, version=turn.version, id="plan-1"))


def _status(index: int, done: int) -> str:
    return "completed" if index < done else "in_progress" if index == done else "pending"


@_command("tool TITLE", "show a tool call that completes")
async def _tool(turn: CommandTurn, title: str) -> None:
    id = await turn.begin_tool(title or "Tool")
    await turn.tool(id, "in_progress")
    await turn.tool(id, "completed", "done")


@_command("mode ID", "change the session's mode")
async def _mode(turn: CommandTurn, mode: str) -> None:
    if not mode:
        raise UsageError
    turn.session.mode = mode
    await turn.update({"sessionUpdate": "current_mode_update", "currentModeId": mode})


@_command("tools", "list the tools of the session's MCP servers")
async def _tools(turn: CommandTurn, _: str) -> None:
    for name, server in sorted(turn.session.servers.items()):
        try:
            tools = await server.tools()
        except McpServerFailure as exc:
            await turn.say(f"{exc}\n")
        else:
            await turn.say(f"{name}: {', '.join(tool['name'] for tool in tools)}\n")
    for _name, reason in sorted(turn.session.broken.items()):
        await turn.say(f"{reason}\n")
    if not turn.session.servers and not turn.session.broken:
        await turn.say("this session has no MCP servers\n")


@_command("call SERVER TOOL [JSON]", "call a tool of an MCP server")
async def _call(turn: CommandTurn, arguments: str) -> None:
    server_name, tool, given = _two_and_json(arguments)
    id = await turn.begin_tool(f"{server_name}: {tool}")
    await turn.tool(id, "in_progress")
    server = turn.session.servers.get(server_name)
    try:
        if server is None:
            reason = f"this session has no MCP server {server_name!r}"
            raise McpServerFailure(turn.session.broken.get(server_name, reason))
        result = await server.call(tool, given)
    except McpServerFailure as exc:
        await turn.tool(id, "failed", str(exc))
        await turn.say(f"{exc}\n")
        return
    text = "".join(item.get("text", f"[{item.get('type')}]") for item in result.get("content", ()))
    await turn.tool(id, "failed" if result.get("isError") else "completed", text)
    await turn.say(f"{text}\n")


@_command("request METHOD [JSON]", "send a request to the client and say its answer")
async def _request(turn: CommandTurn, arguments: str) -> None:
    method, given = _one_and_json(arguments)
    try:
        await turn.say(json.dumps(await turn.client.request(method, given), ensure_ascii=False))
    except RequestError as exc:
        await turn.say(f"{method}: {exc}\n")


@_command("notify METHOD [JSON]", "send a notification to the client")
async def _notify(turn: CommandTurn, arguments: str) -> None:
    await turn.client.notify(*_one_and_json(arguments))


@_command("wait [SECONDS]", "wait, until cancelled if no time is given")
async def _wait(turn: CommandTurn, seconds: str) -> None:
    try:
        await trio.sleep(float(seconds or "inf"))
    except ValueError:
        raise UsageError from None


@_command("stop REASON", "end the turn with this stop reason")
async def _stop(turn: CommandTurn, reason: str) -> None:
    raise StopTurn(reason or "end_turn")


@_command("fail CODE [MESSAGE]", "answer the prompt with an error")
async def _fail(turn: CommandTurn, arguments: str) -> None:
    first, _, message = arguments.partition(" ")
    (code,) = _integers(first, INTERNAL_ERROR)
    raise RequestError(code, message or "failed, as the prompt said")


@_command("env NAME", "say an environment variable of the agent's process")
async def _env(turn: CommandTurn, name: str) -> None:
    await turn.say(f"{name}={os.environ.get(name, '(not set)')}\n")


@_command("log TEXT", "write TEXT on stderr")
async def _log(turn: CommandTurn, text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@_command("exit STATUS", "end the agent's process at once")
async def _exit(turn: CommandTurn, status: str) -> None:
    (number,) = _integers(status, 0)
    await _before_the_end(turn)
    os._exit(number)


@_command("crash", "raise an exception where the agent cannot go on")
async def _crash(turn: CommandTurn, _: str) -> None:
    turn.crash()
    await trio.sleep_forever()


async def _before_the_end(turn: CommandTurn) -> None:
    """Let queued messages be written; refuse if it would end the conductor's process, too."""
    if not turn.alone:
        await turn.say(
            "this agent shares its process with the conductor: give it one of its own "
            "(`isolate: true`, or `run: [python, -m, conductor.testing.agent]`), or use `crash`\n"
        )
        raise StopTurn("refusal")
    for _ in range(3):
        await trio.lowlevel.checkpoint()


# -- arguments (errors: `UsageError`) -------------------------------------------------------------


def _split_words(arguments: str, least: int, most: int) -> list[str]:
    """Return the words; there must be `least` to `most`."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        raise UsageError from None
    if not least <= len(words) <= most:
        raise UsageError
    return words


def _integers(arguments: str, *defaults: int) -> list[int]:
    """Return one integer per default; a missing word takes its default."""
    words = _split_words(arguments, 0, len(defaults))
    try:
        return [*map(int, words), *defaults[len(words) :]]
    except ValueError:
        raise UsageError from None


def _details(arguments: str, *names: str) -> tuple[str, dict[str, list[str]]]:
    """Return the text before the first word `NAME=VALUE`, and the values by name from there on.

    The text stays as it was written; only the words after it are split as in a shell.
    """
    first = re.search(rf"(?:^|\s)(?:{'|'.join(names)})=", arguments)
    text, rest = (
        (arguments[: first.start()], arguments[first.start() :]) if first else (arguments, "")
    )
    found: dict[str, list[str]] = {name: [] for name in names}
    for word in _split_words(rest, 0, len(rest)):
        name, is_given, value = word.partition("=")
        if not is_given or name not in found:
            raise UsageError
        found[name].append(value)
    return text.strip(), found


def _one_and_json(arguments: str) -> tuple[str, dict[str, Any]]:
    """Return the first word, and the JSON object after it; empty if there is none."""
    first, _, rest = arguments.partition(" ")
    if not first:
        raise UsageError
    return first, _object(rest)


def _two_and_json(arguments: str) -> tuple[str, str, dict[str, Any]]:
    """Return the first two words, and the JSON object after them; empty if there is none."""
    first, _, rest = arguments.partition(" ")
    second, given = _one_and_json(rest.strip())
    return first, second, given


def _object(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        _refuse()
    return value if isinstance(value, dict) else _refuse()


def _refuse() -> NoReturn:
    raise UsageError
