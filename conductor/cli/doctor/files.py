"""Files that determine what runs, and directories for state: findings for those that are open to
other users, and for directories in which no file can be made."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding

__all__ = [
    "FileFacts",
    "StateDirectory",
    "chain_files",
    "file_findings",
    "gather_files",
    "gather_state",
    "state_directories",
    "state_findings",
    "state_uses",
]

Kind: TypeAlias = Literal["chain file", "key", "state directory"]


@attrs.frozen
class FileFacts:
    path: str
    kind: Kind
    mode: int
    """Permission bits."""
    is_own: bool = True
    """Whether it belongs to this user, or to root."""


def chain_files(file: ChainFile) -> dict[str, Kind]:
    """The files that a chain consists of: its own, those of nested chains, classes, keys, locks."""
    found: dict[str, Kind] = {os.path.abspath(file.path): "chain file"}
    for spec in file.flat():
        if spec.location is not None:
            found.setdefault(os.path.abspath(spec.location.path), "chain file")
        if spec.use is not None and ".py:" in spec.use:
            found[spec.use.rpartition(":")[0]] = "chain file"
        if spec.registry is not None:
            found[spec.registry.lock] = "chain file"
        if spec.tls is not None:
            found |= {key: "key" for key in (spec.tls.key or spec.tls.cert,) if key}
    return found


def state_directories() -> dict[str, Kind]:
    """The directories where conductors of this user keep sockets, records and agents."""
    from conductor.places import data_directory, runtime_directory, state_directory

    directories = [Path(state_directory()), Path(data_directory())]
    try:
        directories.append(runtime_directory())
    except OSError as exc:
        directories += [Path(exc.filename)] if exc.filename else []
    return {str(directory): "state directory" for directory in directories}


def gather_files(paths: dict[str, Kind]) -> Iterator[FileFacts]:
    """Facts about those of the files that exist."""
    for path, kind in paths.items():
        try:
            found = os.stat(path)
        except OSError:
            continue
        is_own = found.st_uid in (0, os.getuid())
        yield FileFacts(path, kind, stat.S_IMODE(found.st_mode), is_own)


def file_findings(files: Iterable[FileFacts]) -> Iterator[Finding]:
    good = []
    for file in files:
        problem = _problem(file)
        if problem is None:
            good.append(file.path)
        else:
            yield problem
    if good:
        yield Finding("ok", "files", f"only you can change {', '.join(good)}")


def _problem(file: FileFacts) -> Finding | None:
    if not file.is_own:
        message = f"{file.path} ({file.kind}) belongs to another user, who decides what runs"
        return Finding("error", "files", message, f"copy it, or chown it to {_user()}")
    if file.mode & stat.S_IWOTH:
        message = f"every user of this machine can change {file.path} ({file.kind})"
        return Finding("error", "files", message, f"chmod go-w {file.path}")
    if file.kind == "key" and file.mode & 0o077:
        message = f"other users can read {file.path} ({file.kind})"
        return Finding("error", "files", message, f"chmod 600 {file.path}")
    if file.mode & stat.S_IWGRP:
        message = f"the group of {file.path} ({file.kind}) can change it"
        return Finding("warning", "files", message, f"chmod g-w {file.path}, unless you trust it")
    return None


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


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
    from conductor.places import data_directory, runtime_directory, state_directory

    state, data = Path(state_directory()), Path(data_directory())
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
