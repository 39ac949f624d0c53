"""Python, PATH, and the programs that agents and MCP servers are started with."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import attrs

from conductor.cli.doctor.finding import Finding
from conductor.transport.local_command import LEAK_HELP, leaked_variables

__all__ = ["Machine", "gather_machine", "machine_findings"]

_OLDEST: Final = (3, 11)
_LAUNCHERS: Final = {
    "node": "install Node.js: https://nodejs.org",
    "npx": "install Node.js, which npx is part of: https://nodejs.org",
    "uvx": "install uv, which uvx is part of: https://docs.astral.sh/uv",
}
_TIMEOUT: Final = 5.0
_EMPTY_ENTRY: Final = "an empty entry, which is the working directory"


@attrs.frozen
class Machine:
    """Facts about this machine."""

    python: tuple[int, ...]
    executable: str
    path: tuple[str, ...]
    writable_by_others: frozenset[str] = frozenset()
    """Directories of PATH that every user can write to."""
    missing: frozenset[str] = frozenset()
    """Directories of PATH that do not exist."""
    command: str | None = None
    """Path of `acp-conductor` in PATH; `None` if it is not there."""
    leaked: Mapping[str, str] = attrs.field(factory=dict)
    """Variables that point into the package of the program that started this, with their values."""
    launchers: Mapping[str, tuple[str, str] | None] = attrs.field(factory=dict)
    """Path and version of `node`, `npx` and `uvx`; None for those that PATH does not have."""


def gather_machine(environ: Mapping[str, str]) -> Machine:
    path = tuple(environ.get("PATH", os.defpath).split(os.pathsep))
    return Machine(
        python=sys.version_info[:3],
        executable=sys.executable,
        path=path,
        writable_by_others=frozenset(each for each in path if _is_open(each)),
        missing=frozenset(each for each in path if each and not os.path.isdir(each)),
        command=shutil.which("acp-conductor", path=os.pathsep.join(path)),
        leaked=leaked_variables(environ),
        launchers=_launchers(os.pathsep.join(path)),
    )


def machine_findings(machine: Machine, needed: Collection[str]) -> Iterator[Finding]:
    """`needed`: names of the programs that the chain starts."""
    version = ".".join(map(str, machine.python))
    if machine.python < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        yield Finding("error", "python", f"Python {version} is too old", f"use {oldest} or newer")
    else:
        yield Finding("ok", "python", f"{version}, {machine.executable}")
    yield from _path_findings(machine)
    for name, value in machine.leaked.items():
        message = f"{name}={value} is of the editor's package, and every component gets it"
        yield Finding("warning", "environment", message, LEAK_HELP.format(name=name))
    for name, help in _LAUNCHERS.items():
        found = machine.launchers.get(name)
        if found is not None:
            yield Finding("ok", "programs", f"{name} {found[1]}, {found[0]}".replace(" ,", ","))
        elif name in needed:
            yield Finding("error", "programs", f"{name} is not in PATH; the chain needs it", help)
        else:
            yield Finding("ok", "programs", f"{name} is not in PATH; nothing here needs it")


def _path_findings(machine: Machine) -> Iterator[Finding]:
    if machine.command is None:
        yield Finding(
            "warning",
            "path",
            "acp-conductor is not in PATH",
            "give editors its absolute path; `acp-conductor install` writes it",
        )
    else:
        yield Finding("ok", "path", f"acp-conductor is {machine.command}")
    for directory in dict.fromkeys(machine.path):
        if directory in machine.writable_by_others:
            message = f"every user of this machine can put programs into {directory} of PATH"
            yield Finding("warning", "path", message, f"chmod o-w {directory}")
        elif not os.path.isabs(directory):
            found = f"the relative directory {directory}"
            message = f"PATH has {found if directory else _EMPTY_ENTRY}"
            yield Finding("warning", "path", message, "write it as an absolute path")
    if machine.missing:
        names = ", ".join(sorted(machine.missing))
        yield Finding("ok", "path", f"directories that do not exist: {names}")


def _is_open(directory: str) -> bool:
    try:
        mode = os.stat(directory).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _launchers(path: str) -> dict[str, tuple[str, str] | None]:
    with ThreadPoolExecutor(len(_LAUNCHERS)) as pool:  # npx takes a second
        found = {name: pool.submit(_launcher, name, path) for name in _LAUNCHERS}
    return {name: each.result() for name, each in found.items()}


def _launcher(name: str, path: str) -> tuple[str, str] | None:
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
        return program, ""
    words = done.stdout.split()
    return program, next((word for word in words if word.lstrip("v")[:1].isdigit()), "")
