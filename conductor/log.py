"""Logging: events with fields, through structlog, to stderr.

structlog takes 60 ms to import, so it is imported when there is first something to say; a call
below the level costs one comparison.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, Final

import attrs

__all__ = ["LEVELS", "Logger", "configure", "get_logger"]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 100}

_level = LEVELS["warning"]
_structlog: Any = None
_as_json = False


def configure(level: str, *, as_json: bool = False) -> None:
    """Choose what is logged, by name (`LEVELS`), and whether as JSON lines. Imports nothing."""
    global _level, _as_json, _structlog
    _level = LEVELS[level]
    _as_json = as_json
    _structlog = None


@attrs.frozen
class Logger:
    """Bound to what it speaks about; `log.info("component started", pid=17)`."""

    fields: dict[str, Any] = attrs.field(factory=dict)

    def bind(self, **fields: Any) -> Logger:
        return Logger({**self.fields, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        if _level <= 10:
            _emit("debug", event, {**self.fields, **fields})

    def info(self, event: str, **fields: Any) -> None:
        if _level <= 20:
            _emit("info", event, {**self.fields, **fields})

    def warning(self, event: str, **fields: Any) -> None:
        if _level <= 30:
            _emit("warning", event, {**self.fields, **fields})

    def error(self, event: str, **fields: Any) -> None:
        if _level <= 40:
            _emit("error", event, {**self.fields, **fields})


def get_logger(**fields: Any) -> Logger:
    return Logger(fields)


def _emit(level: str, event: str, fields: dict[str, Any]) -> None:
    global _structlog
    if _structlog is None:
        _structlog = _configured_structlog()
    with suppress(OSError, ValueError):  # nobody reads our stderr, or not fast enough
        getattr(_structlog, level)(event, **fields)


def _configured_structlog() -> Any:
    import structlog

    renderer: Any
    if _as_json:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    return structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
    )
