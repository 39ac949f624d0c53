"""Checks of the components of a chain that start nothing and use no network.

Conditions (`when:`) that cannot hold, programs that do not exist, or sandboxes that cannot be made,
are warnings: the chain file may be for another machine. An unknown name of the registry, or a lock
file that does not fit, is an error; a name that is not locked, or not installed, a warning."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.diagnostics import closest_match
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.chainfile.when import agent_names, fits_an_agent
from conductor.errors import RegistryError
from conductor.plugins.loading import ready_made_help
from conductor.registry.resolve import RegistryStatus, registry_status
from conductor.registry.source import NotFetched
from conductor.transport.local_command import local_command
from conductor.transport.spawn import SpawnError

__all__ = ["check_commands", "check_conditions", "check_registry", "registry_lines"]


def check_conditions(chain: ChainFile) -> Iterator[Diagnostic]:
    """A warning for each capability that no schema knows, and for each pattern that does not fit
    the chain's own agent."""
    agents = agent_names(chain)
    for spec in chain.flat():
        for when in spec.when:
            for index, path in enumerate(when.capability):
                yield from _unknown_capability(spec, path, index)
            # One of several patterns is enough.
            if (
                agents
                and when.agent
                and not any(fits_an_agent(each, agents) for each in when.agent)
            ):
                named = ", ".join(f"`{name}`" for name in sorted(agents))
                yield _warning(
                    spec,
                    _place(spec, "agent", 0),
                    f"it is always left out: `{'`, `'.join(when.agent)}` does not fit the agent of "
                    "this file",
                    f"the agent is called {named}; write its name or a shell pattern of it",
                )


def _unknown_capability(spec: ComponentSpec, path: str, index: int) -> Iterator[Diagnostic]:
    if "_meta" in path.split("."):
        return
    from conductor.schema import client_capability_paths

    known = client_capability_paths()
    if path in known:
        return
    meant = closest_match(path, known)
    if meant is not None:
        help = f"did you mean `{meant}`?"
    else:
        help = f"clients have {', '.join(sorted(known))}"
    location = _place(spec, "capability", index)
    yield _warning(spec, location, f"no client has a capability `{path}`", help)


def _place(spec: ComponentSpec, key: str, index: int) -> SourceLocation | None:
    locations = spec.locations
    return locations.get(("when", key, index)) or locations.get(("when", key)) or spec.location


def check_commands(specs: Iterable[ComponentSpec], *, names_path: bool = True) -> list[Diagnostic]:
    """A warning for each local component with a program or directory that does not exist.

    `names_path`: whether the first one for each PATH names it; the error of a failed start does.
    """
    named: set[str] | None = set() if names_path else None
    found = [_program_problem(spec, named) for spec in specs]
    return [problem for problem in found if problem is not None]


def _program_problem(spec: ComponentSpec, named_paths: set[str] | None) -> Diagnostic | None:
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


def check_registry(specs: Iterable[ComponentSpec]) -> list[Diagnostic]:
    """Errors and warnings of all components with `registry`."""
    return [problem for spec in specs for problem in _problems(spec)]


def registry_lines(specs: Iterable[ComponentSpec]) -> Iterator[str]:
    """A line for each component with `registry`: its version and status."""
    for spec in specs:
        if spec.registry is not None:
            try:
                yield f"{spec.name}: {spec.registry.name} {registry_status(spec.registry)}"
            except RegistryError:
                continue


def _problems(spec: ComponentSpec) -> Iterator[Diagnostic]:
    if spec.registry is None:
        return
    location = spec.locations.get(("registry",)) or spec.location or SourceLocation.whole(spec.name)
    try:
        status = registry_status(spec.registry)
    except NotFetched as exc:
        yield Diagnostic(location, exc.message, help=exc.help, severity="warning")
        return
    except RegistryError as exc:
        yield Diagnostic(location, exc.message, help=exc.help)
        return
    if missing := _missing(status):
        message = f"{spec.name}: {spec.registry.name} {status.version} is {missing}"
        help = f"`acp-conductor lock {location.path}` pins its versions and checksums"
        help += ", and installs it"
        yield Diagnostic(location, message, help=help, severity="warning")
    path = spec.environment(os.environ).get("PATH", os.defpath)
    if status.command and shutil.which(status.command[0], path=path) is None:
        message = f"{spec.name}: command not found: {status.command[0]}"
        help = f"install it; PATH is {path}"
        yield Diagnostic(location, message, help=help, severity="warning")


def _missing(status: RegistryStatus) -> str:
    if not status.is_locked:
        return "not locked: a later installation may take other packages"
    return "" if status.command else "locked, but not installed here"
