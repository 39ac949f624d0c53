"""Log of the times for which the event loop is blocked, kept by the watchdog's thread.

Every half second the thread looks at the stack of the loop's thread. A loop that waits for events
is fine, and is not woken. Otherwise it is pinged; a loop that has not replied half a second later
is blocked, and the stack tells by what. So a blocking of a second or longer is always noticed, a
shorter one from half a second on by chance, and the loop does nothing for it but reply to a ping
twice a second while it is busy.

One line is logged per blocking: when it ends, or after five seconds if it goes on. Importing a
module and blockings by other code than a plugin's (a garbage collection, a machine without free
processors) are logged only if they last for five seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Final

import msgspec

from conductor.log import Logger
from conductor.plugins.plugin_code import PluginCode, location, plugin_code
from conductor.transport.epoll_loop import EpollFastPath

__all__ = ["INTERVAL", "BlockingLog", "blocked_by", "is_waiting"]

INTERVAL: Final = 0.5
"""Seconds between two looks at the loop."""
_LONG: Final = 5.0
"""Seconds after which any blocking is logged, also one that goes on."""
_EPSILON: Final = 0.01
_LATE: Final = 0.1
"""Seconds by which a look is late, if other code holds the interpreter lock."""


class _UnansweredPing(msgspec.Struct, eq=False):
    code: PluginCode | None
    """Plugin code that runs."""
    seconds_of_code: float
    """For how long its call has been seen to run."""
    seconds: float = 0.0
    """Time without a reply."""
    logged: bool = False


class BlockingLog(msgspec.Struct, eq=False):
    """Decides when to ping the loop, and what to log. `look` is called about every `INTERVAL`."""

    _frame: Callable[[], FrameType | None]
    """The innermost frame of the loop's thread."""
    _ping: Callable[[], None]
    _log: Logger
    _unanswered: _UnansweredPing | None = None

    def look(self, seconds: float, *, replied: bool) -> None:
        """Look at the loop, `seconds` after the last time. `replied`: it has replied to a ping."""
        ping = self._unanswered
        if replied:
            self._unanswered = None
            if ping is not None:
                ping.seconds_of_code += seconds
                self._log_ended(ping)
            return
        frame = self._frame()
        # Code that holds the interpreter lock (a regular expression) keeps this thread from
        # looking, too.
        late = max(0.0, seconds - INTERVAL)
        if ping is None:
            if frame is not None and not is_waiting(frame):
                self._unanswered = _UnansweredPing(plugin_code(frame), late, late)
                self._ping()
            return
        ping.seconds += seconds
        if ping.code is not None and late >= _LATE:
            ping.seconds_of_code += seconds  # it may just have returned
        elif _is_same_call(code := plugin_code(frame), ping.code):
            ping.code = code
            ping.seconds_of_code += seconds
        else:
            ping.code = code
            ping.seconds_of_code = late
        if ping.seconds >= _LONG and not ping.logged:
            ping.logged = True
            seconds = round(ping.seconds, 1)
            self._log.warning("event loop is blocked", **blocked_by(frame), seconds=seconds)

    @property
    def seconds_of_plugin(self) -> float:
        """For how long one call of a plugin, but for imports, has been blocking the loop."""
        ping = self._unanswered
        if ping is None or ping.code is None or ping.code.is_import:
            return 0.0
        return ping.seconds_of_code

    def _log_ended(self, ping: _UnansweredPing) -> None:
        if ping.logged or ping.seconds_of_code < INTERVAL - _EPSILON:
            return
        if ping.code is None or ping.code.is_import:
            return
        seconds = round(ping.seconds_of_code, 1)
        self._log.warning("event loop was blocked", **_fields(ping.code), seconds=seconds)


def _is_same_call(code: PluginCode | None, before: PluginCode | None) -> bool:
    return code is not None and before is not None and code.call.of is before.call.of


def is_waiting(frame: FrameType) -> bool:
    """Whether an event loop with this innermost frame waits for events."""
    if frame.f_code is EpollFastPath._serve_for.__code__:
        return True
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_name == "get_events" and module.startswith("trio._core._io_")


def blocked_by(frame: FrameType | None) -> dict[str, str]:
    """Log fields for what runs in a stack: `plugin`, `handler`, `method`, `at`, `inside`."""
    code = plugin_code(frame)
    if code is not None:
        return _fields(code)
    return {} if frame is None else {"at": location(frame)}


def _fields(code: PluginCode) -> dict[str, str]:
    inside = {} if code.inside is None else {"inside": code.inside}
    return {**code.call.fields, "at": code.at, **inside}
