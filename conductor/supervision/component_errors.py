"""Errors of a component that did not start, or ended: with command, place, status and stderr.

In: the component's spec and its run, if a process or connection has begun. Secrets are masked: the
command is shown as the chain file has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from conductor.chainfile.model import ComponentSpec, ValuePath
from conductor.errors import ComponentExited, StartError
from conductor.jsonrpc.messages import truncate
from conductor.supervision.component_run import ComponentRun

__all__ = ["exit_error", "handshake_error", "start_error"]

_MAX_REASON: Final = 200
"""Characters of the line of stderr in an error message."""
_NO_REASON: Final = re.compile(r"\s|Node\.js v|note: |\W*$")
"""Lines that follow the message of an uncaught exception or a panic."""


def start_error(spec: ComponentSpec, run: ComponentRun | None, reason: str) -> StartError:
    """The start failed for `reason`, a clause."""
    status: str | None = None
    stderr_tail: tuple[str, ...] = ()
    if run is not None:
        stderr_tail = run.last_stderr()
        if run.end_cause is None and run.endpoint.reached:
            status = run.endpoint.status
    return StartError(
        spec.name,
        reason,
        command=_shown_command(spec),
        status=status,
        stderr_tail=stderr_tail,
        location=_location(spec),
    )


def handshake_error(spec: ComponentSpec, run: ComponentRun | None, reason: str) -> StartError:
    """The handshake failed: because the process ended, it could not be reached, or for `reason`."""
    problem = None if run is None else run.end_cause or run.endpoint.status
    if problem is None and run is not None and not run.endpoint.reached:
        seconds = f"{spec.start_timeout:g} s (start_timeout)"
        problem = f"could not be reached at {run.endpoint.location} within {seconds}"
    return start_error(spec, run, f"it {problem}" if problem else reason)


def exit_error(spec: ComponentSpec, run: ComponentRun) -> ComponentExited:
    """The component ended after it was initialized."""
    stderr_tail = run.last_stderr()
    return ComponentExited(
        spec.name,
        run.end_reason,
        stderr_tail=stderr_tail,
        last_line=_reason_in(stderr_tail) if run.end_cause is None else "",
        location=_location(spec),
    )


def _reason_in(stderr_tail: Sequence[str]) -> str:
    """The line that most likely says why a process has ended, cut; empty if there is none."""
    found = (line for line in reversed(stderr_tail) if not _NO_REASON.match(line))
    return truncate(next(found, ""), _MAX_REASON)


def _shown_command(spec: ComponentSpec) -> list[str]:
    """The command as the chain file has it, with `${VAR}` unexpanded: values may be secret."""
    return [
        spec.written[path].text if (path := ("run", index)) in spec.written else word
        for index, word in enumerate(spec.run or ())
    ]


def _location(spec: ComponentSpec) -> str | None:
    paths: list[ValuePath] = [("run", 0), ("use",), ("registry",), ("connect",), ("unix",)]
    locations = (spec.locations.get(path) for path in paths)
    location = next(filter(None, locations), spec.location)
    return None if location is None else str(location)
