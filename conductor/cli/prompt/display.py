"""Output of `prompt`: the answer on stdout and the rest on stderr, or JSON lines on stdout.

Text of an agent is untrusted: control characters are removed on a terminal, and each message on
stderr stays one line.
"""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.acp.sessions import FINISHED
from conductor.chain.start_failure import remedies
from conductor.cli.prompt.content import (
    as_mapping,
    content_text,
    diffs_of,
    json_text,
    message_text,
    notice_text,
    options_of,
    paths_of,
    raw_input_lines,
    tool_call_of,
    unseen_paths,
)
from conductor.cli.terminal_text import printable
from conductor.errors import RequestError

__all__ = [
    "Display",
    "JsonDisplay",
    "Stdout",
    "TextDisplay",
    "error_lines",
    "one_line",
]

_WIDEST: Final = 500
_LONGEST_ERROR: Final = 5000
_MARKS: Final = {"completed": "x", "in_progress": ">"}


@attrs.define(eq=False)
class Stdout:
    """Writer for the answer's file descriptor. Calls `broken` once, when a write fails."""

    fd: int
    broken: Callable[[], None] = attrs.field(default=lambda: None)
    is_broken: bool = attrs.field(default=False, init=False)
    is_terminal: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.is_terminal = os.isatty(self.fd)

    def write(self, text: str) -> None:
        if self.is_terminal:
            text = "".join(char for char in text if char.isprintable() or char in "\n\t")
            self.write_bytes(text.encode(locale.getpreferredencoding(False), "replace"))
        else:
            self.write_bytes(text.encode(errors="replace"))

    def write_bytes(self, text: bytes) -> None:
        data = memoryview(text)
        try:
            while data and not self.is_broken:
                data = data[os.write(self.fd, data) :]
        except OSError:
            self.is_broken = True
            self.broken()


@attrs.define(eq=False)
class Display:
    """Shows the events of one session, in order; this one shows nothing but notes."""

    stdout: Stdout

    def initialized(self, result: Mapping[str, Any]) -> None:
        pass

    def opened(self, result: Mapping[str, Any]) -> None:
        pass

    def begin_turn(self) -> None:
        pass

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        pass

    def history(self, session: str, update: Mapping[str, Any]) -> None:
        """An update of an earlier turn, sent again for a session that is continued."""

    def ask(self, request: Mapping[str, Any], options: Sequence[Mapping[str, Any]]) -> None:
        """Show a permission question; `permission` follows when it is decided."""
        print_question(request, options)

    def permission(self, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        title = tool_call_of(request).get("title") or request.get("title") or "a tool call"
        self.note(f"permission: {title}: {_chosen_option(request, outcome)}")

    def ended(self, result: Mapping[str, Any]) -> None:
        reason = result.get("stopReason")
        if reason != "end_turn":
            message = as_mapping(result.get("error")).get("message")
            self.note(f"stopped: {reason}" + (f": {message}" if message else ""))

    def failed(self, step: str, error: RequestError) -> None:
        pass

    def note(self, text: str) -> None:
        print(one_line(text), file=sys.stderr, flush=True)

    def cancelling(self) -> None:
        self.note("cancelling; press again to kill the chain")

    async def refresh(self) -> None:
        """Run until cancelled; for what changes with time."""

    def end(self) -> None:
        pass


@attrs.define(eq=False)
class TextDisplay(Display):
    """Human-readable text output."""

    _in_line: bool = attrs.field(default=False, init=False)
    _titles: dict[str, str] = attrs.field(factory=dict, init=False)
    _last: str = attrs.field(default="", init=False)
    """The last line on stderr, unless other output has followed."""
    _streamed: set[str] = attrs.field(factory=set, init=False)
    """Ids of messages (version 2) with chunks that were written."""

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._streamed.add(str(update.get("messageId")))
                self._write_answer(content_text(update.get("content")))
            case "tool_call" | "tool_call_update":
                self._note_tool_call(update)
            case "notice":
                self.note(notice_text(update))
            case "agent_message" if str(update.get("messageId")) not in self._streamed:
                self._write_answer(message_text(update))
            case "plan":
                self.note(f"plan: {_plan(update.get('entries'))}")
            case "plan_update":
                self.note(f"plan: {_plan(as_mapping(update.get('plan')).get('entries'))}")
            case "current_mode_update":
                self.note(f"mode: {update.get('currentModeId')}")

    def ask(self, request: Mapping[str, Any], options: Sequence[Mapping[str, Any]]) -> None:
        self._end_line()
        super().ask(request, options)
        self._last = ""

    def ended(self, result: Mapping[str, Any]) -> None:
        self._end_line()
        super().ended(result)

    def failed(self, step: str, error: RequestError) -> None:
        self._end_line()
        for line in error_lines(step, error):
            print(line, file=sys.stderr, flush=True)
        self._last = ""

    def note(self, text: str) -> None:
        """Print a line on stderr, after the current line of the answer; repeats are left out."""
        self._end_line()
        line = one_line(text)
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
        self._last = line

    def end(self) -> None:
        self._end_line()

    def _write_answer(self, text: str) -> None:
        if text:
            self.stdout.write(text)
            self._in_line = not text.endswith("\n")
            self._last = ""

    def _end_line(self) -> None:
        if self._in_line:
            self.stdout.write("\n")
            self._in_line = False

    def _note_tool_call(self, update: Mapping[str, Any]) -> None:
        id = str(update.get("toolCallId"))
        known = self._titles.get(id)
        title = str(update.get("title") or known or id)
        self._titles[id] = title
        status = update.get("status")
        if status in FINISHED:
            self.note(f"tool: {title}: {status}")
        elif title != known:
            kind = update.get("kind")
            self.note(f"tool: {title}" + (f" ({kind})" if kind else ""))


@attrs.define(eq=False)
class JsonDisplay(Display):
    """JSON output: one object per line, with the kind of event as `type`."""

    def initialized(self, result: Mapping[str, Any]) -> None:
        self._event("initialized", result=result)

    def opened(self, result: Mapping[str, Any]) -> None:
        self._event("session", sessionId=result.get("sessionId"), result=result)

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        self._event("update", sessionId=session, update=update)

    def history(self, session: str, update: Mapping[str, Any]) -> None:
        self._event("history", sessionId=session, update=update)

    def permission(self, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        self._event("permission", request=request, outcome=outcome)

    def ended(self, result: Mapping[str, Any]) -> None:
        self._event("answer", result=result)

    def failed(self, step: str, error: RequestError) -> None:
        data = {} if error.data is None else {"data": error.data}
        error_object = {"code": error.code, "message": error.message, **data}
        self._event("error", step=step, error=error_object)

    def _event(self, type: str, **members: Any) -> None:
        self.stdout.write(json_text({"type": type, **members}) + "\n")


def print_question(request: Mapping[str, Any], options: Sequence[Mapping[str, Any]]) -> None:
    """Print a permission question: what it is about, with its files and diff, and the options."""
    call = tool_call_of(request)
    title = request.get("title") or call.get("title") or "may it use a tool?"
    lines = [f"The agent asks: {title}"]
    if call.get("rawInput") is not None:
        lines += [f"  {line}" for line in raw_input_lines(call["rawInput"])]
    content = call.get("content")
    diffs = diffs_of(content if isinstance(content, list) else ())
    lines += [f"  {path}" for path in unseen_paths(paths_of(call), diffs, lines)]
    for diff in diffs:
        lines.append(f"  {diff.path}")
        lines += [f"  {line}" for line in diff.lines]
    lines += [f"  {number}  {option.get('name')}" for number, option in enumerate(options, 1)]
    for line in lines:
        print(_shortened(printable(line.expandtabs(4)).rstrip()), file=sys.stderr, flush=True)


def error_lines(step: str, error: RequestError) -> list[str]:
    """The printable lines that tell of an error response to a request."""
    first, *others = error.message[:_LONGEST_ERROR].splitlines() or [""]
    lines = [f"error: {step}: {first} ({error.code})", *(f"  {line}" for line in others)]
    lines += [f"  {line}" for line in _details(error)]
    if step == "initialize":
        lines += [f"  try: {remedy}" for remedy in remedies(error.message)]
    return [printable(line).rstrip() for line in lines]


def one_line(text: str) -> str:
    """Untrusted text as one short line without control characters."""
    return _shortened(printable(text).strip())


def _shortened(line: str) -> str:
    return line if len(line) <= _WIDEST else line[:_WIDEST] + "…"


def _plan(entries: Any) -> str:
    shown = []
    for entry in entries if isinstance(entries, list) else ():
        mark = _MARKS.get(str(as_mapping(entry).get("status")), " ")
        shown.append(f"[{mark}] {as_mapping(entry).get('content')}")
    return "  ".join(shown)


def _chosen_option(request: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    for option in options_of(request):
        if option.get("optionId") == outcome.get("optionId"):
            return str(option.get("name"))
    return str(outcome.get("outcome"))


def _details(error: RequestError) -> list[str]:
    """Lines for the `data` of an error."""
    data = error.data
    if data is None:
        return []
    if not isinstance(data, Mapping) or "component" not in data:
        return [data if isinstance(data, str) else json_text(data)]
    details = [f"in {data['place']}"] if "place" in data else []
    if "command" in data:
        details.append(f"command: {' '.join(map(str, data['command']))}")
    return details + [f"stderr: {line}" for line in data.get("stderr", ())]
