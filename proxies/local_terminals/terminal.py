"""Commands that run for an agent: their output, exit status, and how tool calls show them.

A tool call shows a terminal as text, as it is when the update passes, and once more when it has
ended: the client has none.
"""

from __future__ import annotations

import codecs
import shlex
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from conductor.bounded_dict import BoundedDict
from conductor.proxy.commands import RunningCommand, open_command
from proxies.shared.client_texts import console_text, exit_text

__all__ = ["LocalTerminal", "OutputTail", "TerminalContent", "argv_of", "shown_command"]

_GRACE: Final = 1.0
"""Seconds between SIGTERM and SIGKILL."""
_MAX_SHOWN: Final = 16 * 1024
"""Bytes of the output that the user sees."""
_MAX_COMMAND: Final = 1000
_MAX_REMEMBERED: Final = 100
"""Ended terminals, and tool calls with a terminal, that are remembered; the oldest are
forgotten."""


@attrs.define(eq=False)
class OutputTail:
    """The end of a command's output, as text of at most so many bytes in UTF-8."""

    limit: int
    _data: bytearray = attrs.field(factory=bytearray, init=False)
    _is_cut: bool = attrs.field(default=False, init=False)
    """Whether earlier output is gone."""

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * self.limit + 4096:  # not for each byte: that moves all others
            self._is_cut = True
            del self._data[: len(self._data) - self.limit - 4]

    def text(self, *, is_ended: bool, limit: int | None = None) -> tuple[str, bool]:
        """The end of the output, and whether something is missing before it. It is cut before a
        whole character. An incomplete character at the end is left out while more may follow. Other
        bytes than UTF-8 are replaced."""
        limit = self.limit if limit is None else min(limit, self.limit)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        encoded = decoder.decode(bytes(self._data), final=is_ended).encode()
        left_out = max(0, len(encoded) - limit)
        return encoded[left_out:].decode(errors="ignore"), self._is_cut or left_out > 0


@attrs.define(eq=False)
class LocalTerminal:
    """A terminal of `terminal/create`."""

    session: str
    """The id of the session that may use it."""
    command: str
    """The command line for the user."""
    output: OutputTail
    problem: str | None = None
    """Why it did not start."""
    status: int | None = None
    """The exit status, negative for a signal."""
    started: trio.Event = attrs.field(factory=trio.Event, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _running: RunningCommand | None = attrs.field(default=None, init=False)

    async def run(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Run the command until it ends. `started` is set at once, `ended` at the end."""
        running: RunningCommand | None = None
        try:
            with self._scope:
                async with open_command(argv, cwd=cwd, env=env) as running:
                    self._running = running
                    self.started.set()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._read, running)
                        await running.wait()
        except OSError as exc:
            self.problem = str(exc)
        finally:
            self.status = -signal.SIGKILL if running is None else running.status
            self.started.set()
            self.ended.set()

    async def terminate(self) -> None:
        """End the command: SIGTERM, and SIGKILL a second later. Returns when it has ended."""
        if self._running is not None:
            self._running.send_signal(signal.SIGTERM)
            with trio.move_on_after(_GRACE):
                await self.ended.wait()
            self._running.send_signal(signal.SIGKILL)
        await self.ended.wait()

    def abandon(self) -> None:
        """Kill the command; `ended` is set when that has happened."""
        self._scope.cancel()

    def exit_status(self) -> dict[str, Any]:
        """How the ended command ended, as in the protocol."""
        assert self.status is not None
        if self.status >= 0:
            return {"exitCode": self.status, "signal": None}
        return {"exitCode": None, "signal": _signal_name(-self.status)}

    def text(self) -> str:
        """The output as Markdown."""
        is_ended = self.ended.is_set()
        output, is_cut = self.output.text(is_ended=is_ended, limit=_MAX_SHOWN)
        ending = ""
        if is_ended:
            status = self.exit_status()
            ending = exit_text(status["exitCode"], status["signal"])
        return console_text(self.command, output, ending, is_cut=is_cut)

    async def _read(self, running: RunningCommand) -> None:
        while data := await running.read():
            self.output.add(data)


@attrs.define(eq=False)
class TerminalContent:
    """The terminals and the tool calls of a chain."""

    _running: dict[str, LocalTerminal] = attrs.field(factory=dict, init=False)
    _ended: BoundedDict[str, str] = attrs.field(
        factory=lambda: BoundedDict(_MAX_REMEMBERED), init=False
    )
    """Output of ended terminals, by id."""
    _calls: BoundedDict[tuple[str, str], list[Any]] = attrs.field(
        factory=lambda: BoundedDict(_MAX_REMEMBERED), init=False
    )
    """The content of tool calls with a terminal that runs, by session and call."""

    def add(self, id: str, terminal: LocalTerminal) -> None:
        self._running[id] = terminal

    def ended(self, id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Take the end of a terminal; yields sessions, and the updates that show it there."""
        _set_as_newest(self._ended, id, self._running.pop(id).text())
        for (session, call), content in list(self._calls.items()):
            if id not in _terminals(content):
                continue
            if self._running.keys().isdisjoint(_terminals(content)):
                del self._calls[session, call]
            shown = [self._shown(each) for each in content]
            update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "content": shown}
            yield session, update

    def convert(self, session: str, call: dict[str, Any]) -> None:
        """Replace the terminals in a tool call, or in an update of one."""
        content = call.get("content")
        if not isinstance(content, list):
            return
        key = session, str(call.get("toolCallId"))
        terminals = _terminals(content)
        if self._running.keys().isdisjoint(terminals):
            self._calls.pop(key, None)
        else:
            _set_as_newest(self._calls, key, content)
        if terminals:
            call["content"] = [self._shown(each) for each in content]

    def _shown(self, part: Any) -> Any:
        for id in _terminals([part]):
            terminal = self._running.get(id)
            text = self._ended.get(id, "[terminal]") if terminal is None else terminal.text()
            shown = {"type": "content", "content": {"type": "text", "text": text}}
            return {**shown, "_meta": part["_meta"]} if "_meta" in part else shown
        return part


def argv_of(command: str, args: Sequence[str]) -> list[str]:
    """The argv to execute: the program with its arguments, or, without arguments, a shell with the
    line, as agents send it."""
    if args:
        return [command, *args]
    return [shutil.which("bash") or "/bin/sh", "-c", command]


def shown_command(command: str, args: Sequence[str]) -> str:
    text = shlex.join([command, *args]) if args else command
    return text if len(text) <= _MAX_COMMAND else f"{text[:_MAX_COMMAND]}…"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _terminals(content: list[Any]) -> list[str]:
    """The ids of the terminals in a content."""
    return [
        id
        for each in content
        if isinstance(each, dict) and each.get("type") == "terminal"
        if isinstance(id := each.get("terminalId"), str)
    ]


def _set_as_newest(kept: BoundedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
