"""Directories for state: findings for those that cannot be written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from conductor.cli.doctor.finding import Finding

__all__ = ["StateDirectory", "gather_state", "state_findings", "state_uses"]


@attrs.frozen
class StateDirectory:
    path: str
    use: str
    """The feature that does not work without it."""
    variable: str
    """The environment variable that moves it, on Linux."""
    error: str | None = None
    """Why no file can be made in it; None: it can."""


def state_uses() -> Iterator[StateDirectory]:
    """The directories in which conductors of this user make files; they need not exist."""
    from platformdirs import user_data_path, user_state_path

    from conductor.places import runtime_directory

    state = user_state_path("acp-conductor", appauthor=False)
    data = user_data_path("acp-conductor", appauthor=False)
    for path, use in (
        (state, "`trust` and `remember` keep nothing"),
        (state / "flight", "the flight recorder of a failed conductor is not written"),
        (state / "editors", "`install --write` keeps no record for `uninstall`"),
    ):
        yield StateDirectory(str(path), use, "XDG_STATE_HOME")
    yield StateDirectory(str(data / "agents"), "no agent is installed", "XDG_DATA_HOME")
    use = "`ps`, `trace show PID` and `trace dump PID` do not see running conductors"
    try:
        runtime = str(runtime_directory())
    except OSError as exc:
        yield StateDirectory(str(exc.filename), use, "XDG_RUNTIME_DIR", str(exc.strerror or exc))
    else:
        yield StateDirectory(runtime, use, "XDG_RUNTIME_DIR")


def gather_state(directories: Iterable[StateDirectory]) -> list[StateDirectory]:
    """The directories, each with the error of writing a file without a name in it."""
    return [
        each if each.error else attrs.evolve(each, error=_write_error(Path(each.path)))
        for each in directories
    ]


def state_findings(directories: Iterable[StateDirectory]) -> Iterator[Finding]:
    good = True
    for each in directories:
        if each.error is None:
            continue
        good = False
        message = f"no file can be made in {each.path} ({each.error}): {each.use}"
        help = f"make it a directory of yours that you can write to, or set {each.variable}"
        help += " to another"
        yield Finding("warning", "state", message, help)
    if good:
        yield Finding("ok", "state", "the directories for state can be written")


def _write_error(path: Path) -> str | None:
    """The error of a small file in the directory, or in the nearest parent if it is missing."""
    try:
        while not path.exists() and path != path.parent:
            path = path.parent
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
    except OSError as exc:
        return exc.strerror or str(exc)
    return None
