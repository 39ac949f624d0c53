"""Check that the programs of a chain exist, without running them (`check`).

A missing program, or a sandbox that cannot be made, is a warning: the chain file may be for another
machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.model import ComponentSpec
from conductor.plugins.loading import ready_made_help
from conductor.transport.local_command import local_command
from conductor.transport.spawn import SpawnError

__all__ = ["check_commands"]


def check_commands(specs: Iterable[ComponentSpec], *, names_path: bool = True) -> list[Diagnostic]:
    """A warning for each local component with a program or directory that does not exist.

    `names_path`: whether the first one for each PATH names it; the error of a failed start does.
    """
    named: set[str] | None = set() if names_path else None
    found = [_problem(spec, named) for spec in specs]
    return [problem for problem in found if problem is not None]


def _problem(spec: ComponentSpec, named_paths: set[str] | None) -> Diagnostic | None:
    if spec.run is None or spec.ssh is not None:
        return None
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        location = spec.locations.get(("cwd",)) or spec.location
        return _warning(spec, location, "its working directory does not exist")
    if spec.sandbox is not None:
        try:
            local_command(spec, os.environ)
        except SpawnError as exc:
            location = spec.key_locations.get(("sandbox",)) or spec.location
            return _warning(spec, location, str(exc))
        return None
    program = spec.run[0]
    path = spec.environment(os.environ).get("PATH", os.defpath)
    if shutil.which(program, path=path) is not None:
        return None
    written = spec.written.get(("run", 0))
    shown = program if written is None else written.text
    location = spec.locations.get(("run", 0)) or spec.locations.get(("run",)) or spec.location
    if not os.path.dirname(program):
        if (meant := ready_made_help(program)) is not None:
            return _warning(spec, location, f"command not found: {shown}", meant)
        help = "install it, or write its absolute path"
        if named_paths is not None and path not in named_paths:
            named_paths.add(path)
            help += f"; PATH is {path}"
        return _warning(spec, location, f"command not found: {shown}", help)
    found = os.path.exists(program)
    return _warning(spec, location, f"{'not executable' if found else 'no such file'}: {shown}")


def _warning(
    spec: ComponentSpec, location: SourceLocation | None, message: str, help: str | None = None
) -> Diagnostic:
    location = location or SourceLocation.whole("<command line>")
    return Diagnostic(location, f"{spec.name}: {message}", help=help, severity="warning")
