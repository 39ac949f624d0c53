"""Rich renderables for the content of a view: answers in Markdown, tool calls, diffs, the plan.

Only this module and `rich_display` import rich. All text passes through `clean`, and again through
`Safe` once rendered (Markdown has entities for characters), so that no control character of an
agent reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from conductor.cli.prompt.content import FileDiff, unseen_paths
from conductor.cli.prompt.display import one_line
from conductor.cli.prompt.view import (
    Answer,
    Block,
    Note,
    PastPrompt,
    ShownCall,
    ShownPlanEntry,
    Thought,
)

__all__ = ["THEME", "LastLines", "Safe", "block", "clean", "live_call", "plan", "question", "tail"]

THEME: Final = Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"})
_MAX_MARKDOWN: Final = 64 * 1024
_MAX_COLOURED: Final = 8 * 1024
_MAX_CELLS: Final = 20_000
_DIFF_LINES: Final = 40
_QUESTION_DIFF_LINES: Final = 400
_OUTPUT_LINES: Final = 4
_SPINNER: Final = "|/-\\"
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


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
class LastLines:
    """The last lines of a renderable."""

    inner: RenderableType
    count: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.inner, options, pad=False)
        for line in lines[-self.count :]:
            yield from line
            yield Segment.line()


@attrs.frozen
class TrimmedRenderable:
    """A renderable without blank lines at its begin and end: rich puts some around lists and
    code."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.inner, options, pad=False)
        filled = [n for n, line in enumerate(lines) if "".join(each.text for each in line).strip()]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            yield from line
            yield Segment.line()


class _LeftHeading(Heading):
    """A heading at the left; rich centers it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold")
        yield self.text


class _ShortCode(CodeBlock):
    """A code block, in colours if it is short: the time of some of pygments' patterns grows with
    the square of the text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if len(self.text.plain) > _MAX_COLOURED:
            self.lexer_name = "text"
        yield from super().__rich_console__(console, options)


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _ShortCode,
    }


def block(shown: Block, now: float, *, is_plain: bool = False) -> RenderableType:
    """A finished block. `is_plain`: not as Markdown."""
    match shown:
        case Answer(markdown):
            text = Text(clean(markdown)) if is_plain else _markdown(markdown)
            return Group(TrimmedRenderable(Safe(text)), Text())
        case Thought(text):
            return Group(Text(clean(text).strip(), style="dim italic"), Text())
        case PastPrompt(text):
            return Group(Text("> " + clean(text).strip(), style="bold"), Text())
        case Note(text):
            return Text(one_line(text), style="dim")
        case ShownCall():
            return _tool_call(shown, now)


def tail(shown: Block, lines: int, *, is_plain: bool = False) -> RenderableType:
    """The last lines of an unfinished block. `is_plain`: not as Markdown."""
    is_long = is_plain or len(getattr(shown, "markdown", "")) > _MAX_MARKDOWN // 4
    if isinstance(shown, Answer) and not is_long:
        return LastLines(TrimmedRenderable(Safe(_markdown(shown.markdown))), lines)
    text = shown.markdown if isinstance(shown, Answer) else getattr(shown, "text", "")
    style = "" if isinstance(shown, Answer) else "dim italic"
    return LastLines(Text(clean("\n".join(text[-16384:].splitlines()[-lines:])), style), lines)


def live_call(call: ShownCall, now: float) -> Text:
    """A running tool call, with its elapsed time."""
    mark = _SPINNER[int(now * 8) % len(_SPINNER)]
    line = Text.assemble((f"{mark} ", "yellow"), one_line(call.title), no_wrap=True)
    return line.append(f"  {_seconds(call.seconds(now))}", "dim")


def plan(entries: Sequence[ShownPlanEntry]) -> RenderableType:
    """The plan, one line for each step."""
    return Group(*(_plan_line(entry) for entry in entries))


def question(
    title: str, call: ShownCall, raw_input: Sequence[str], options: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """A permission question: what it is about, with its files and diff, and the options."""
    parts: list[RenderableType] = [
        Text.assemble(("? ", "bold yellow"), (one_line(title), "bold")),
    ]
    parts += [Text(f"  {clean(line)}", style="dim") for line in raw_input]
    paths = unseen_paths(call.paths, call.diffs, [title, *raw_input])
    parts += [Text(f"  {one_line(path)}", style="dim") for path in paths]
    parts += [_diff(each, _QUESTION_DIFF_LINES) for each in call.diffs]
    for number, option in enumerate(options, 1):
        name = one_line(str(option.get("name")))
        parts.append(Text.assemble("  ", (str(number), "bold cyan"), f"  {name}"))
    return Group(*parts)


def _markdown(text: str) -> RenderableType:
    text = clean(text)
    if len(text) > _MAX_MARKDOWN or _cells(text) > _MAX_CELLS:  # rendering takes long
        return Text(text)
    # No hyperlinks: the address is shown, and is not hidden behind a text.
    return _Markdown(text.strip("\n"), code_theme="ansi_dark", hyperlinks=False)


def _cells(text: str) -> int:
    """The number of cells of a table with as many columns as the widest line has, and all lines."""
    lines = text.splitlines()
    return len(lines) * max((line.count("|") for line in lines), default=0)


def _tool_call(call: ShownCall, now: float) -> RenderableType:
    ended = {"completed": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("✗", "yellow")}
    mark, style = ended.get(call.status, ("…", "yellow"))
    head = Text.assemble((f"{mark} ", style), one_line(call.title))
    if call.kind and call.kind != "other":
        head.append(f" ({one_line(call.kind)})", "dim")
    head.append(f"  {_seconds(call.seconds(now))}", "dim")
    parts: list[RenderableType] = [head, *(_diff(each, _DIFF_LINES) for each in call.diffs)]
    output = clean(call.output[:4096]).strip().splitlines()
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


def _plan_line(entry: ShownPlanEntry) -> Text:
    mark, style = {"completed": ("[x] ", "dim"), "in_progress": ("[>] ", "bold")}.get(
        entry.status, ("[ ] ", "")
    )
    return Text(mark + one_line(entry.text), style=style, no_wrap=True, overflow="ellipsis")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 60 else f"{int(seconds // 60)}m{int(seconds % 60):02}s"
