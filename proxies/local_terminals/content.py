"""Terminals in the content of tool calls, as text for a client that has none. Pure.

A tool call shows a terminal as it is when the update passes, and once more when it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.local_terminals.terminal import LocalTerminal

__all__ = ["TerminalContent"]

_MAX_REMEMBERED: Final = 100
"""Ended terminals, and tool calls with a terminal, that are remembered; the oldest are
forgotten."""


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
