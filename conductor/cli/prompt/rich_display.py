"""Output of `prompt` on a terminal, by rich: finished blocks above, what still changes below.

The lower part, redrawn ten times a second, has the end of the answer, running tool calls with their
elapsed time, and the plan. Its height is less than the terminal's; finished blocks are printed
once, above it, and scroll as usual.

All text passes through `clean`, and again through `Safe` once rendered (Markdown has entities for
characters), so that no control character of an agent reaches the terminal.
"""

from __future__ import annotations

import io
import locale
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, ClassVar, Final

import attrs
import trio
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from conductor.cli.prompt.content import (
    FileDiff,
    paths_of,
    raw_input_lines,
    tool_call_of,
    unseen_paths,
)
from conductor.cli.prompt.display import Display, error_lines, one_line
from conductor.cli.prompt.view import (
    Answer,
    Block,
    Note,
    PastPrompt,
    ShownCall,
    ShownPlanEntry,
    Thought,
    View,
)
from conductor.errors import RequestError

__all__ = ["RichDisplay"]

_INTERVAL: Final = 0.1
"""Seconds between two redraws."""
_LONG_TAIL: Final = 16 * 1024
"""Characters of an unfinished block that is redrawn as plain text."""
_DIFF_LINES: Final = 40
_QUESTION_DIFF_LINES: Final = 400
_OUTPUT_LINES: Final = 4
_SPINNER: Final = "|/-\\"
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_THEME: Final = Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"})


@attrs.define(eq=False)
class RichDisplay(Display):
    """Shows a session on a terminal."""

    view: View = attrs.field(factory=View, init=False)
    _console: Console = attrs.field(init=False)
    _live: Live | None = attrs.field(default=None, init=False)
    _began: float | None = attrs.field(default=None, init=False)
    """When the turn began; None between turns."""
    _is_held: bool = attrs.field(default=False, init=False)
    """The user is asked."""
    _later: list[RenderableType] = attrs.field(factory=list, init=False)
    """Output that arrived meanwhile."""
    _hint: str = attrs.field(default="", init=False)
    """Effect of Ctrl-C, as shown to the user."""

    def __attrs_post_init__(self) -> None:
        encoding = locale.getpreferredencoding(False)
        file = os.fdopen(self.stdout.fd, "w", encoding=encoding, errors="replace", closefd=False)
        self._console = Console(file=file, theme=_THEME, highlight=False, legacy_windows=False)

    def opened(self, result: Mapping[str, Any]) -> None:
        self._show(self.view.end_turn())

    def begin_turn(self) -> None:
        self.view.begin_turn()
        self._hint = "Ctrl-C cancels"
        self._began = time.monotonic()
        self._draw()

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        if update.get("sessionUpdate") != "user_message_chunk":  # the user has typed it
            self.history(session, update)

    def history(self, session: str, update: Mapping[str, Any]) -> None:
        self._show(self.view.apply(update, time.monotonic()))

    def ask(self, request: Mapping[str, Any], options: Sequence[Mapping[str, Any]]) -> None:
        """Show a permission question; nothing else is shown until it is decided."""
        call = tool_call_of(request)
        known = self.view.merge_call(call, time.monotonic())
        title = str(request.get("title") or known.title or "May the agent use a tool?")
        raw = call.get("rawInput")
        known.seen_diffs = known.diffs
        self._show(self.view.flush())
        self._stop_live()
        self._print(_question(title, known, [] if raw is None else raw_input_lines(raw), options))
        self._is_held = True

    def permission(self, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        self._release()
        super().permission(request, outcome)

    def ended(self, result: Mapping[str, Any]) -> None:
        self._end_turn()
        super().ended(result)

    def failed(self, step: str, error: RequestError) -> None:
        self._end_turn()
        for line in error_lines(step, error):
            self._print(Text(line, style="red" if line.startswith("error:") else ""))

    def note(self, text: str) -> None:
        self._show([*self.view.flush(), Note(text)])

    def cancelling(self) -> None:
        self._hint = "cancelling, Ctrl-C kills the chain"
        super().cancelling()

    async def refresh(self) -> None:
        above = LinesAbove(lambda line: self._print(Text(clean(line), style="dim")))
        with redirect_stderr(above), redirect_stdout(above):
            while True:
                await trio.sleep(_INTERVAL)
                if self._began is not None:
                    self._draw()

    def end(self) -> None:
        self._release()
        self._end_turn()

    def _release(self) -> None:
        """Show what came while the user was asked."""
        self._is_held = False
        for shown in self._later:
            self._print(shown)
        self._later.clear()

    def _end_turn(self) -> None:
        if self._began is None:
            return
        self._began = None
        plan = self.view.plan
        self._show(self.view.end_turn())
        self._stop_live()
        if plan and any(entry.status != "completed" for entry in plan):
            self._print(_plan(plan))

    def _show(self, blocks: Sequence[Block]) -> None:
        for each in blocks:
            self._print(block(each, time.monotonic()))

    def _print(self, shown: RenderableType) -> None:
        if self._is_held:
            self._later.append(shown)
        else:
            self._console.print(shown)

    def _draw(self) -> None:
        """Draw the lower part."""
        if self._is_held or self.stdout.is_broken or self._console.is_dumb_terminal:
            return
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(self._lower_part(), refresh=True)

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.update(Text(), refresh=False)
            self._live.stop()
            self._live = None

    def _lower_part(self) -> RenderableType:
        now, height = time.monotonic(), max(self._console.height - 2, 3)
        running = [_live_call(each, now) for each in self.view.running[-4:]]
        entries = self.view.plan[: max(height - len(running) - 4, 0)]
        parts: list[RenderableType] = []
        if (block := self.view.tail) is not None:
            parts.append(_tail(block, max(height - len(running) - len(entries) - 1, 1)))
        parts += running
        if entries:
            parts.append(_plan(entries))
        elapsed = int(now - (self._began or now))
        parts.append(Text(f"{elapsed}s · {self._hint}", style="dim", no_wrap=True))
        return Group(*parts)


class LinesAbove(io.TextIOBase):
    """Replacement of stderr: calls `show` with each whole line, which is printed above.

    Lines of the log and of plugins would otherwise break the part of the screen that is redrawn. It
    has no file descriptor.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._show(line)
        return len(text)


def clean(text: str) -> str:
    """Text of an agent without control characters, but for ends of lines; tabs as spaces."""
    text = text.expandtabs(4)
    if text.isprintable():
        return text
    return "".join(char for char in text if char.isprintable() or char == "\n")


@attrs.frozen
class Safe:
    """A renderable that cleans every rendered text."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.inner, options):
            yield Segment(clean(segment.text), segment.style, segment.control)


@attrs.frozen
class Lines:
    """The lines of a renderable, or the last `count`, without blank ones at its begin and end: rich
    puts some around lists and code."""

    inner: RenderableType
    count: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.inner, options, pad=False)
        filled = [n for n, line in enumerate(lines) if "".join(each.text for each in line).strip()]
        trimmed = lines[filled[0] : filled[-1] + 1] if filled else []
        for line in trimmed[-self.count :]:
            yield from line
            yield Segment.line()


class _LeftHeading(Heading):
    """A heading at the left; rich centers it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold")
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
    }


def _markdown(text: str) -> RenderableType:
    # No hyperlinks: the address is shown, and is not hidden behind a text.
    return Safe(_Markdown(clean(text).strip("\n"), code_theme="ansi_dark", hyperlinks=False))


def block(shown: Block, now: float) -> RenderableType:
    """A finished block."""
    match shown:
        case Answer(text):
            return Group(Lines(_markdown(text)), Text())
        case Thought(text):
            return Group(Text(clean(text).strip(), style="dim italic"), Text())
        case PastPrompt(text):
            return Group(Text("> " + clean(text).strip(), style="bold"), Text())
        case Note(text):
            return Text(one_line(text), style="dim")
        case ShownCall():
            return _tool_call(shown, now)


def _tail(shown: Block, lines: int) -> RenderableType:
    """The last lines of an unfinished block."""
    text = getattr(shown, "text", "")
    if isinstance(shown, Answer) and len(text) < _LONG_TAIL:
        return Lines(_markdown(text), lines)
    style = "" if isinstance(shown, Answer) else "dim italic"
    last = "\n".join(text[-_LONG_TAIL:].splitlines()[-lines:])
    return Lines(Text(clean(last), style), lines)


def _live_call(call: ShownCall, now: float) -> Text:
    """A running tool call, with its elapsed time."""
    mark = _SPINNER[int(now * 8) % len(_SPINNER)]
    line = Text.assemble((f"{mark} ", "yellow"), one_line(call.title), no_wrap=True)
    return line.append(f"  {_seconds(call.seconds(now))}", "dim")


def _question(
    title: str, shown: ShownCall, raw_input: Sequence[str], options: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """A permission question: what it is about, with its files and diff, and the options."""
    diffs = shown.diffs
    parts: list[RenderableType] = [
        Text.assemble(("? ", "bold yellow"), (one_line(title), "bold")),
    ]
    parts += [Text(f"  {clean(line)}", style="dim") for line in raw_input]
    paths = unseen_paths(paths_of(shown.call.members), diffs, [title, *raw_input])
    parts += [Text(f"  {one_line(path)}", style="dim") for path in paths]
    parts += [_diff(each, _QUESTION_DIFF_LINES) for each in diffs]
    for number, option in enumerate(options, 1):
        name = one_line(str(option.get("name")))
        parts.append(Text.assemble("  ", (str(number), "bold cyan"), f"  {name}"))
    return Group(*parts)


def _tool_call(shown: ShownCall, now: float) -> RenderableType:
    ended = {"completed": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("✗", "yellow")}
    mark, style = ended.get(shown.call.status, ("…", "yellow"))
    head = Text.assemble((f"{mark} ", style), one_line(shown.title))
    if shown.call.kind != "other":
        head.append(f" ({one_line(shown.call.kind)})", "dim")
    head.append(f"  {_seconds(shown.seconds(now))}", "dim")
    diffs = () if shown.diffs == shown.seen_diffs else shown.diffs
    parts: list[RenderableType] = [head, *(_diff(each, _DIFF_LINES) for each in diffs)]
    output = clean(shown.output).strip().splitlines()
    for line in output[:_OUTPUT_LINES]:
        parts.append(Text(f"  {line}", style="dim", overflow="ellipsis", no_wrap=True))
    if len(output) > _OUTPUT_LINES:
        parts.append(Text(f"  … {len(output) - _OUTPUT_LINES} more lines", style="dim"))
    return Group(*parts)


def _diff(diff: FileDiff, limit: int) -> RenderableType:
    lines = [Text(one_line(diff.path), style="bold")]
    for line in diff.lines[:limit]:
        shown = Text(clean(line) or " ", style=_STYLES.get(line[:1], ""), overflow="fold")
        lines.append(shown)
    if len(diff.lines) > limit:
        lines.append(Text(f"… {len(diff.lines) - limit} more lines", style="dim"))
    return Padding(Group(*lines), (0, 0, 0, 2))


def _plan(entries: Sequence[ShownPlanEntry]) -> RenderableType:
    """The plan, one line for each step."""
    lines = []
    for entry in entries:
        mark, style = {"completed": ("[x] ", "dim"), "in_progress": ("[>] ", "bold")}.get(
            entry.status, ("[ ] ", "")
        )
        text = mark + one_line(entry.text)
        lines.append(Text(text, style=style, no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds // 60)}m{int(seconds % 60):02}s"
