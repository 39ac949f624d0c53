"""Logging: events with fields, to stderr: text for people, else one JSON object per line.

structlog makes the text and the tracebacks. It takes 60 ms to import, so it is imported for the
first event that needs it: a chain that an editor starts logs JSON, and does not wait for it. A call
below the level costs one comparison.

Events of one kind (level, text and component) have a rate limit, for stderr and traces alike: a
peer that causes an event by each of its messages fills no disk. The next event of the kind has the
number of those left out as `skipped`; without one, so has the next event of any kind, or the end.

What libraries write with `logging`, for a message of a peer too, is an event of the same log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conductor.token_bucket import TokenBucket

__all__ = [
    "FORMATS",
    "LEVELS",
    "LogListener",
    "Logger",
    "bind_context",
    "configure",
    "get_logger",
    "hold",
    "is_json",
    "listen",
    "release",
    "report_skipped",
]

LogListener = Callable[[str, str, dict[str, object]], None]

FORMATS = ("auto", "text", "json")
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 100}

_PIPE_BUF = 4096
_WRITE_TIMEOUT_MS = 100
_MAX_HELD = 10_000
_MAX_CHARS = 8192
"""Limit for each text of an event, and for a traceback."""
_MAX_KINDS = 1000
_level = LEVELS["warning"]
_structlog: object = None
_listener: LogListener | None = None
_contexts: list[Callable[[], dict[str, object]]] = []
_as_json = False
_brief = False
_lifecycle = True
_rates: dict[tuple[str, str, object], TokenBucket] = {}
"""By level, event and component."""
_skipping: dict[tuple[str, str, object], TokenBucket] = {}
"""Kinds with events that were left out, and not counted yet."""


def configure(
    level: str, *, as_json: bool = False, brief: bool = False, lifecycle: bool = True
) -> None:
    """Set the level (a name in `LEVELS`) and the format: text or JSON lines.

    `brief` leaves out the components' stderr and lifecycle (otherwise level info), and errors that
    the client receives too; without `lifecycle`, only that is left out.
    """
    global _level, _as_json, _brief, _lifecycle, _structlog
    _level = LEVELS[level]
    _as_json = as_json
    _brief = brief
    _lifecycle = lifecycle and not brief
    _structlog = None
    _rates.clear()
    _skipping.clear()
    _take_library_logs()


def _take_library_logs() -> None:
    """Log what libraries write with `logging`. Python itself would write it to stderr: unmasked,
    without limit, and waiting for a reader."""
    import logging

    class LibraryLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            level = "warning" if record.levelno < logging.ERROR else "error"
            try:
                text = record.getMessage()
            except Exception:  # its arguments do not fit
                text = str(record.msg)
            fields: dict[str, object] = {"component": record.name, "text": text}
            if record.exc_info is not None and record.exc_info[1] is not None:
                from conductor.errors import describe

                fields["error"] = describe(record.exc_info[1])
            _log(level, "message of a library", fields)

    logging.lastResort = LibraryLog(logging.WARNING)


def listen(listener: LogListener) -> None:
    """Call `listener` with the level, the event and the fields of each event from level info on,
    written or not."""
    global _listener
    _listener = listener


def bind_context(context: Callable[[], dict[str, object]]) -> None:
    """Call `context` for fields of each event that is written: what the task belongs to, or the
    message that it handles."""
    _contexts.append(context)


def is_json(log_format: str) -> bool:
    """Whether a format of `FORMATS` is JSON: "auto" is, unless stderr is a terminal."""
    if log_format != "auto":
        return log_format == "json"
    try:
        return not os.isatty(2)
    except OSError:
        return True


class Logger:
    """Logger with bound fields: `log.info("file read", path=path)`.

    An event is a constant text in lower case; values are fields. Secrets are masked.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields: dict[str, object] = fields

    def bind(self, **fields: object) -> Logger:
        """Return a logger with these fields, too."""
        return Logger({**self.fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        if _level <= 10:
            _log("debug", event, {**self.fields, **fields})

    def info(self, event: str, **fields: object) -> None:
        if _level <= 20 or _listener is not None:
            _log("info", event, {**self.fields, **fields})

    def lifecycle(self, event: str, **fields: object) -> None:
        """A start, a handshake, an end: at level info, but not in a brief log."""
        _log("info", event, {**self.fields, **fields}, is_written=_lifecycle)

    def component_stderr(self, event: str, **fields: object) -> None:
        """Output of a component; `conductor.supervision.component_run` limits its rate."""
        fields = {**self.fields, **fields}
        _log("info", event, fields, is_written=not _brief, is_limited=False)

    def reported_error(self, event: str, **fields: object) -> None:
        """An error that the client receives too."""
        _log("error", event, {**self.fields, **fields}, is_written=not _brief)

    def warning(self, event: str, **fields: object) -> None:
        _log("warning", event, {**self.fields, **fields})

    def error(self, event: str, **fields: object) -> None:
        _log("error", event, {**self.fields, **fields})


def get_logger(**fields: object) -> Logger:
    """Return a logger; each of its lines has these fields: `get_logger(component="notes")`.

    Lines go to stderr and to a trace; those below the level of `--log` are not written.
    """
    return Logger(fields)


def report_skipped(*, now: float | None = None) -> None:
    """Log the number of events that were left out, by kind: of all kinds, as at the end of the
    process, or of those that may have an event again at `now` (seconds, monotonic)."""
    for kind, rate in list(_skipping.items()):
        if now is None or rate.take(now, 0):
            rate.spend(1)
            del _skipping[kind]
            level, event, component = kind
            fields = {"what": event, "skipped": rate.take_skipped()}
            if component is not None:
                fields["component"] = component
            _write(level, "log events left out", fields)


def _log(
    level: str,
    event: str,
    fields: dict[str, object],
    *,
    is_written: bool = True,
    is_limited: bool = True,
) -> None:
    is_written = is_written and _level <= LEVELS[level]
    if (is_written or _listener is not None) and (not is_limited or _admit(level, event, fields)):
        _write(level, event, fields, is_written=is_written)


def _admit(level: str, event: str, fields: dict[str, object]) -> bool:
    """Whether the rate allows an event of this kind now. Adds `skipped` to its fields."""
    import atexit
    from time import monotonic

    from conductor.token_bucket import TokenBucket

    now = monotonic()
    kind = level, event, fields.get("component")
    rate = _rates.get(kind)
    if rate is None:
        if len(_rates) >= _MAX_KINDS:
            report_skipped()
            _rates.clear()
        rate = _rates[kind] = TokenBucket()
    if (more := rate.report(now)) is None:
        if not _skipping:
            atexit.unregister(report_skipped)
            atexit.register(report_skipped)
        _skipping[kind] = rate
        return False
    fields |= more
    _skipping.pop(kind, None)
    if _skipping:
        report_skipped(now=now)
    return True


def _write(
    level: str, event: str, fields: dict[str, object], *, is_written: bool | None = None
) -> None:
    fields = {name: _cut(value) for name, value in fields.items()}
    if _listener is not None and level != "debug":
        _listener(level, event, dict(fields))
    if _level <= LEVELS[level] if is_written is None else is_written:
        _emit(level, event, fields)


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > _MAX_CHARS:
        from conductor.secrets.masking import redact

        value = redact(value)  # no half of a secret stays at the cut
        half = _MAX_CHARS // 2
        return f"{value[:half]} … [cut] … {value[-half:]}"
    return value


def _emit(level: str, event: str, fields: dict[str, object]) -> None:
    global _structlog
    for context in _contexts:
        fields = {**{name: _cut(value) for name, value in context().items()}, **fields}
    with suppress(OSError, ValueError):  # stderr has no reader
        if _as_json and "exc_info" not in fields:
            _stderr.msg(_json_line(level, event, fields))
            return
        if _structlog is None:
            try:
                _structlog = _configured_structlog()
            except (OSError, ImportError):  # no free file descriptor to import it with
                _stderr.msg(f"[{level}] {event} {fields}")
                return
        getattr(_structlog, level)(event, **fields)


def _json_line(level: str, event: str, fields: dict[str, object]) -> str:
    """A line as structlog's renderer writes it, without its import."""
    import json
    import time

    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
    line = {**fields, "event": event, "level": level, "timestamp": at}
    return json.dumps(line, default=repr)


class _Stderr:
    """Writes lines to stderr, secrets masked, never blocked by a full pipe.

    An editor that does not read the conductor's stderr fills the pipe; waiting for it would stop
    the chain. A full pipe is waited for `_WRITE_TIMEOUT_MS`, then lines are dropped and counted.
    A writable pipe takes at least `PIPE_BUF` bytes, so longer lines are written in parts.
    """

    def __init__(self) -> None:
        self._dropped_lines = 0
        self.held: list[str] | None = None
        """Lines that wait for `release`, instead of being written."""

    def msg(self, message: str) -> None:
        from conductor.secrets.masking import redact

        if self.held is not None:
            if len(self.held) < _MAX_HELD:
                self.held.append(redact(message))
            else:
                self._dropped_lines += 1
            return
        dropped = (
            f" [{self._dropped_lines} earlier log lines were lost]" if self._dropped_lines else ""
        )
        if self._write((redact(message) + dropped + "\n").encode(errors="backslashreplace")):
            self._dropped_lines = 0
        else:
            self._dropped_lines += 1

    log = debug = info = warning = error = critical = msg

    def _write(self, data: bytes) -> bool:
        import select

        try:
            fd = sys.stderr.fileno()
        except (AttributeError, OSError, ValueError):  # an embedding program replaced it
            print(data.decode(), end="", file=sys.stderr)
            return True
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        sys.stderr.flush()
        for start in range(0, len(data), _PIPE_BUF):
            timeout = 0 if self._dropped_lines else _WRITE_TIMEOUT_MS
            if not any(events & select.POLLOUT for _, events in poll.poll(timeout)):
                return False
            os.write(fd, data[start : start + _PIPE_BUF])
        return True


_stderr = _Stderr()


def hold() -> None:
    """Keep the lines of a brief log until `release`: there is a conversation on the terminal."""
    if _brief:
        _stderr.held = []


def release() -> None:
    """Write the lines that were kept, and further ones at once."""
    held, _stderr.held = _stderr.held or [], None
    for line in held:
        _stderr.msg(line)


def _cut_traceback(
    _logger: object, _level: str, fields: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    if "exception" in fields:
        fields["exception"] = _cut(fields["exception"])
    return fields


def _without_controls(
    _logger: object, _level: str, fields: MutableMapping[str, object]
) -> dict[str, object]:
    """Text of peers without what controls a terminal: the renderer writes texts without a space as
    they are."""
    return {name: _printable(value) for name, value in fields.items()}


def _printable(value: object) -> object:
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in value)


def _configured_structlog() -> object:
    import structlog

    renderer = (
        structlog.processors.JSONRenderer()
        if _as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # Tracebacks are formatted below; the default formatter imports rich where it is there.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    return structlog.wrap_logger(
        _stderr,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _cut_traceback,
            *([] if _as_json else [_without_controls]),
            renderer,
        ],
    )
