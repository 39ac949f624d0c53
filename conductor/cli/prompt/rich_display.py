"""Output of `prompt` on a terminal: finished blocks above, what still changes below.

The lower part, redrawn ten times a second, has the end of the answer, running tool calls with their
elapsed time, and the plan. Its height is less than the terminal's; finished blocks are printed
once, above it, and scroll as usual.
"""

from __future__ import annotations

import io
import locale
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final

import attrs
import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from conductor.cli.prompt import renderables
from conductor.cli.prompt.content import FileDiff, raw_input_lines, tool_call_of
from conductor.cli.prompt.display import CANCELLING, Stdout, chosen_option, error_lines
from conductor.cli.prompt.view import Block, Note, ShownCall, View
from conductor.errors import RequestError

__all__ = ["LinesAbove", "RichDisplay", "terminal_console"]

_INTERVAL: Final = 0.1
"""Seconds between two redraws."""
_LONG: Final = 0.25
"""Seconds of the processor for rendering one block, or the lower part."""
_MAX_LATER: Final = 500


class _TerminalFile(io.TextIOBase):
    """Output file for rich: the terminal, in the encoding of the locale."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._encoding = locale.getpreferredencoding(False)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stdout.write_bytes(text.encode(self._encoding, "replace"))
        return len(text)


def terminal_console(stdout: Stdout) -> Console:
    """A console on a terminal; NO_COLOR and TERM are heeded."""
    file = _TerminalFile(stdout)
    return Console(file=file, theme=renderables.THEME, highlight=False, legacy_windows=False)  # type: ignore[arg-type]


@attrs.define(eq=False)
class RichDisplay:
    """Shows a session on a terminal."""

    stdout: Stdout
    view: View = attrs.field(factory=View, init=False)
    session: str = attrs.field(default="", init=False)
    console: Console = attrs.field(init=False)
    _live: Live | None = attrs.field(default=None, init=False)
    _began: float | None = attrs.field(default=None, init=False)
    """When the turn began; None between turns."""
    _is_held: bool = attrs.field(default=False, init=False)
    """The user is asked."""
    _asked: dict[str, tuple[FileDiff, ...]] = attrs.field(factory=dict, init=False)
    """Diffs that questions have shown, by tool call."""
    _later: deque[RenderableType] = attrs.field(
        factory=lambda: deque(maxlen=_MAX_LATER), init=False
    )
    """Output that arrived meanwhile, only the newest."""
    _hint: str = attrs.field(default="", init=False)
    """Effect of Ctrl-C, as shown to the user."""
    _left_out: int = attrs.field(default=0, init=False)
    _is_slow: bool = attrs.field(default=False, init=False)
    """Rendering has taken long in this turn: further output is plain text."""

    def __attrs_post_init__(self) -> None:
        self.console = terminal_console(self.stdout)

    def initialized(self, result: Mapping[str, Any]) -> None:
        pass

    def opened(self, result: Mapping[str, Any]) -> None:
        self.session = str(result.get("sessionId", ""))
        self._show(self.view.end_turn())
        if "availableCommands" in result:
            self.view.set_commands(result)

    def begin_turn(self) -> None:
        self.view.begin_turn()
        self._hint = "Ctrl-C cancels"
        self._asked.clear()
        self._is_slow = False
        self._began = time.monotonic()
        self._draw()

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        if update.get("sessionUpdate") in ("user_message", "user_message_chunk"):
            return  # the user has typed it
        self._show(self.view.apply(update, time.monotonic()))

    def history(self, session: str, update: Mapping[str, Any]) -> None:
        self._show(self.view.apply(update, time.monotonic()))

    def ask(self, request: Mapping[str, Any], options: Sequence[Mapping[str, Any]]) -> None:
        """Show a permission question; nothing else is shown until it is decided."""
        call = tool_call_of(request)
        known = self.view.merge_call(call, time.monotonic())
        title = str(request.get("title") or known.title or "May the agent use a tool?")
        raw = call.get("rawInput")
        raw_input = [] if raw is None else raw_input_lines(raw)
        self._asked[known.id] = known.diffs
        self._show(self.view.flush())
        self._stop_live()
        self._print(renderables.question(title, known, raw_input, options))
        self._is_held = True

    def release(self) -> None:
        """Show what came while the user was asked."""
        self._is_held = False
        if self._left_out:
            self._print(Text(f"({self._left_out} earlier messages are not shown)", style="dim"))
            self._left_out = 0
        while self._later:
            self._print(self._later.popleft())

    def permission(self, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        title = request.get("title") or tool_call_of(request).get("title") or "a tool call"
        self.release()
        self.note(f"permission: {title}: {chosen_option(request, outcome)}")

    def ended(self, result: Mapping[str, Any]) -> None:
        self._end_turn()
        reason = result.get("stopReason")
        if reason != "end_turn":
            error = result.get("error")
            message = error.get("message") if isinstance(error, Mapping) else None
            self.note(f"stopped: {reason}" + (f": {message}" if message else ""))

    def failed(self, step: str, error: RequestError) -> None:
        self._end_turn()
        for line in error_lines(step, error):
            self._print(Text(line, style="red" if line.startswith("error:") else ""))

    def note(self, text: str) -> None:
        self._show([*self.view.flush(), Note(text)])

    def cancelling(self) -> None:
        self._hint = "cancelling, Ctrl-C kills the chain"
        self.note(CANCELLING)

    async def refresh(self) -> None:
        above = LinesAbove(self._show_line)
        with redirect_stderr(above), redirect_stdout(above):
            while True:
                await trio.sleep(_INTERVAL)
                if self._began is not None:
                    self._draw()

    def end(self) -> None:
        self.release()
        self._end_turn()

    def _show_line(self, line: str) -> None:
        self._print(Text(renderables.clean(line), style="dim"))

    def _end_turn(self) -> None:
        if self._began is None:
            return
        self._began = None
        plan = self.view.plan
        self._show(self.view.end_turn())
        self._stop_live()
        if plan and any(entry.status != "completed" for entry in plan):
            self._print(renderables.plan(plan))

    def _show(self, blocks: Sequence[Block]) -> None:
        now = time.monotonic()
        for each in blocks:
            if isinstance(each, ShownCall) and each.diffs == self._asked.get(each.id):
                each = attrs.evolve(each, diffs=())
            self._print(renderables.block(each, now, is_plain=self._is_slow))

    def _print(self, shown: RenderableType) -> None:
        if self._is_held:
            self._left_out += len(self._later) == _MAX_LATER
            self._later.append(shown)
        else:
            with self._timed():
                self.console.print(shown)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Notice rendering that takes long: some texts are made for that."""
        begin = time.thread_time()
        yield
        self._is_slow = self._is_slow or time.thread_time() - begin > _LONG

    def _draw(self) -> None:
        """Draw the lower part."""
        if self._is_held or self.stdout.is_broken or self.console.is_dumb_terminal:
            return
        if self._live is None:
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        with self._timed():
            self._live.update(self._lower_part(), refresh=True)

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.update(Text(), refresh=False)
            self._live.stop()
            self._live = None

    def _lower_part(self) -> RenderableType:
        now, height = time.monotonic(), max(self.console.height - 2, 3)
        running = [renderables.live_call(each, now) for each in self.view.running[-4:]]
        entries = self.view.plan[: max(height - len(running) - 4, 0)]
        parts: list[RenderableType] = []
        if (block := self.view.tail) is not None:
            room = max(height - len(running) - len(entries) - 1, 1)
            parts.append(renderables.tail(block, room, is_plain=self._is_slow))
        parts += running
        if entries:
            parts.append(renderables.plan(entries))
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
