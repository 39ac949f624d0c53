"""This machine: Python, PATH, the programs that agents and MCP servers are started with, who can
change files that determine what runs, directories for state, and entries in editors."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from conductor.chainfile.model import ChainFile
from conductor.cli.doctor.finding import Finding
from conductor.cli.install.installation import ConfigFileError, InstalledFile, Records
from conductor.places import data_directory, runtime_directory, state_directory
from conductor.transport.local_command import LEAK_HELP, leaked_variables

__all__ = [
    "chain_files",
    "editor_findings",
    "file_findings",
    "machine_findings",
    "state_directories",
    "state_findings",
]

Kind: TypeAlias = Literal["chain file", "key", "state directory"]

_LAUNCHERS: Final = {
    "node": "install Node.js: https://nodejs.org",
    "npx": "install Node.js, which npx is part of: https://nodejs.org",
    "uvx": "install uv, which uvx is part of: https://docs.astral.sh/uv",
}
_TIMEOUT: Final = 5.0
_EMPTY_ENTRY: Final = "an empty entry, which is the working directory"


def machine_findings(environ: Mapping[str, str], needed: Collection[str]) -> Iterator[Finding]:
    """`needed`: names of the programs that the chain starts."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "python", f"{version}, {sys.executable}")
    path = environ.get("PATH", os.defpath)
    yield from _path_findings(path)
    for name, value in leaked_variables(environ).items():
        message = f"{name}={value} is of the editor's package, and every component gets it"
        yield Finding("warning", "environment", message, LEAK_HELP.format(name=name))
    with ThreadPoolExecutor(len(_LAUNCHERS)) as pool:  # npx takes a second
        found = pool.map(lambda name: _launcher(name, path), _LAUNCHERS)
        for (name, help), each in zip(_LAUNCHERS.items(), found, strict=True):
            if each is not None:
                yield Finding("ok", "programs", f"{name} {each}")
            elif name in needed:
                message = f"{name} is not in PATH; the chain needs it"
                yield Finding("error", "programs", message, help)
            else:
                yield Finding("ok", "programs", f"{name} is not in PATH; nothing here needs it")


def _path_findings(path: str) -> Iterator[Finding]:
    command = shutil.which("acp-conductor", path=path)
    if command is None:
        help = "give editors its absolute path; `acp-conductor install` writes it"
        yield Finding("warning", "path", "acp-conductor is not in PATH", help)
    else:
        yield Finding("ok", "path", f"acp-conductor is {command}")
    for directory in dict.fromkeys(path.split(os.pathsep)):
        if not os.path.isabs(directory):
            found = f"the relative directory {directory}"
            message = f"PATH has {found if directory else _EMPTY_ENTRY}"
            yield Finding("warning", "path", message, "write it as an absolute path")
        elif _is_open(directory):
            message = f"every user of this machine can put programs into {directory} of PATH"
            yield Finding("warning", "path", message, f"chmod o-w {directory}")


def _is_open(directory: str) -> bool:
    try:
        mode = os.stat(directory).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _launcher(name: str, path: str) -> str | None:
    """Version and path of a program; `None` if it is not in PATH."""
    program = shutil.which(name, path=path)
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            cwd="/",  # launchers read the configuration of the working directory
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return program
    words = done.stdout.split()
    version = next((f"{word}, " for word in words if word.lstrip("v")[:1].isdigit()), "")
    return version + program


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
    directories = [Path(state_directory()), Path(data_directory())]
    try:
        directories.append(runtime_directory())
    except OSError as exc:
        directories += [Path(exc.filename)] if exc.filename else []
    return {str(directory): "state directory" for directory in directories}


def file_findings(paths: Mapping[str, Kind]) -> Iterator[Finding]:
    """Files, as far as they exist, that others can change, and keys that they can read."""
    good = []
    for path, kind in paths.items():
        try:
            found = os.stat(path)
        except OSError:
            continue
        problem = _problem(path, kind, found)
        if problem is None:
            good.append(path)
        else:
            yield problem
    if good:
        yield Finding("ok", "files", f"only you can change {', '.join(good)}")


def _problem(path: str, kind: Kind, found: os.stat_result) -> Finding | None:
    if found.st_uid not in (0, os.getuid()):
        message = f"{path} ({kind}) belongs to another user, who decides what runs"
        return Finding("error", "files", message, f"copy it, or chown it to {os.getuid()}")
    if found.st_mode & stat.S_IWOTH:
        message = f"every user of this machine can change {path} ({kind})"
        return Finding("error", "files", message, f"chmod go-w {path}")
    if kind == "key" and found.st_mode & 0o077:
        message = f"other users can read {path} ({kind})"
        return Finding("error", "files", message, f"chmod 600 {path}")
    if found.st_mode & stat.S_IWGRP:
        message = f"the group of {path} ({kind}) can change it"
        return Finding("warning", "files", message, f"chmod g-w {path}, unless you trust it")
    return None


def state_findings() -> Iterator[Finding]:
    """The directories in which conductors of this user make files, and what is lost without."""
    state, data = Path(state_directory()), Path(data_directory())
    uses = [
        (state, "XDG_STATE_HOME", "`trust` and `remember` keep nothing"),
        (state / "flight", "XDG_STATE_HOME", "no flight recorder of a failed conductor is written"),
        (state / "editors", "XDG_STATE_HOME", "`install --write` has no record for `uninstall`"),
        (data / "agents", "XDG_DATA_HOME", "no agent is installed"),
    ]
    problems = [(path, variable, use, _write_error(path)) for path, variable, use in uses]
    use = "`ps`, `trace show PID` and `trace dump PID` do not see running conductors"
    try:
        runtime = runtime_directory()
    except OSError as exc:
        problems.append((Path(exc.filename), "XDG_RUNTIME_DIR", use, exc.strerror or str(exc)))
    else:
        problems.append((runtime, "XDG_RUNTIME_DIR", use, _write_error(runtime)))
    for path, variable, use, error in problems:
        if error is not None:
            message = f"no file can be made in {path} ({error}): {use}"
            help = f"make it a directory of yours that you can write to, or set {variable}"
            yield Finding("warning", "state", message, f"{help} to another")
    if all(error is None for *_, error in problems):
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


def editor_findings() -> Iterator[Finding]:
    """The entries that `install` wrote into editors' files."""
    try:
        files = Records.load().files
    except ConfigFileError as exc:
        yield Finding("error", "editors", str(exc))
        return
    if not files:
        help = "`acp-conductor install EDITOR --chain FILE --write` writes one"
        yield Finding("ok", "editors", "no entries of `install`", help)
    for file in files.values():
        names = ", ".join(file.entries)
        if not os.path.exists(file.target):
            message = f"{file.path} of {file.editor} is gone, with {names}"
            help = f"`acp-conductor install {file.editor} … --write` writes the entry again"
            yield Finding("warning", "editors", message, help)
        elif gone := [path for path in _started(file) if not os.path.exists(path)]:
            starts = f"starts what is not there: {', '.join(gone)}"
            message = f"{file.editor}: {names} in {file.path} {starts}"
            help = f"`acp-conductor uninstall {file.editor}`, then `install` with the present path"
            yield Finding("error", "editors", message, help)
        else:
            yield Finding("ok", "editors", f"{file.editor}: {names} in {file.path}")


def _started(file: InstalledFile) -> Iterator[str]:
    """The absolute paths of the program and the chain file in entries of JSON settings."""
    for edit in (edit for edits in file.entries.values() for edit in edits):
        words = _words(edit.value if isinstance(edit.value, dict) else {"command": edit.value})
        found = words[:1]
        found += [word for before, word in pairwise(words) if before in ("run", "--chain")]
        yield from (word for word in found if os.path.isabs(word))


def _words(entry: Mapping[str, Any]) -> list[str]:
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return []
    if isinstance(args, list):
        return [command, *args]
    try:
        return shlex.split(command)
    except ValueError:
        return []
