"""Log of the times for which the event loop is blocked, kept by the watchdog's thread.

Every half second the thread pings the loop. A loop that has not replied half a second later is
blocked, and the stack of its thread tells by what. So a blocking of a second or longer is always
noticed, a shorter one from half a second on by chance.

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

__all__ = ["INTERVAL", "BlockingLog", "blocked_by"]

INTERVAL: Final = 0.5
"""Seconds between two looks at the loop."""
_LONG: Final = 5.0
"""Seconds after which any blocking is logged, also one that goes on."""
_EPSILON: Final = 0.01


class _UnansweredPing(msgspec.Struct, eq=False):
    seconds: float
    """Time without a reply."""
    code: PluginCode | None = None
    """The plugin code that was seen last."""
    logged: bool = False


class BlockingLog(msgspec.Struct, eq=False):
    """Decides what to log. `look` is called about every `INTERVAL`."""

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
                ping.seconds += seconds
                self._log_ended(ping)
            return
        if ping is None:
            # Code that holds the interpreter lock (a regular expression) keeps this thread from
            # looking, too.
            ping = self._unanswered = _UnansweredPing(max(0.0, seconds - INTERVAL))
            self._ping()
        else:
            ping.seconds += seconds
        frame = self._frame()
        ping.code = plugin_code(frame) or ping.code
        if ping.seconds >= _LONG and not ping.logged:
            ping.logged = True
            seconds = round(ping.seconds, 1)
            self._log.warning("event loop is blocked", **blocked_by(frame), seconds=seconds)

    @property
    def seconds_of_plugin(self) -> float:
        """For how long handlers or tasks of plugins have been blocking the loop."""
        ping = self._unanswered
        return 0.0 if ping is None or _call(ping.code) is None else ping.seconds

    def _log_ended(self, ping: _UnansweredPing) -> None:
        if ping.logged or ping.seconds < INTERVAL - _EPSILON:
            return
        if ping.code is not None and ping.code.call is not None:
            seconds = round(ping.seconds, 1)
            self._log.warning("event loop was blocked", **ping.code.fields, seconds=seconds)


def _call(code: PluginCode | None) -> object:
    return None if code is None else code.call


def blocked_by(frame: FrameType | None) -> dict[str, str]:
    """Log fields for what runs in a stack: `plugin`, `handler`, `method`, `at`."""
    code = plugin_code(frame)
    if code is not None:
        return code.fields
    return {} if frame is None else {"at": location(frame)}
