"""`acp-conductor trust [PATH]`, `acp-conductor untrust [PATH]`"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conductor.chainfile.model import ComponentSpec

__all__ = ["command", "untrust_command"]


@click.command("trust")
@click.argument("path", default=".", type=click.Path())
@click.option("--list", "lists", is_flag=True, help="List the files that you trust.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(*, path: str, lists: bool, yes: bool) -> None:
    """Use the chain file of a project: `.acp-conductor.yaml` in or above PATH.

    Shows the programs that it runs and asks. What you trust is its content, with that of the chain
    files, Python files, lock and registry that it names: after a change, sessions of the project
    fail until you trust it again. The programs themselves, and what they read, may change.

    \b
    Examples:
      acp-conductor trust
      acp-conductor trust ~/src/project
      acp-conductor trust --list
    """
    from conductor.chainfile.trust_store import TrustedFile, remember

    if lists:
        _list()
        return
    found = project_path(path)
    _refuse_outside_projects(found)
    files = _shown(found)
    if not yes:
        if not sys.stdin.isatty():
            click.echo("Not trusted: there is no terminal to ask; --yes trusts it.", err=True)
            sys.exit(1)
        if not click.confirm("Run these in sessions of this project?", default=False):
            click.echo("Not trusted.")
            sys.exit(1)
    try:
        remember(TrustedFile(found, files))
    except OSError as exc:
        raise click.ClickException(f"it cannot be remembered: {exc}") from None
    click.echo("Trusted. New sessions of this project use it.")


def project_path(path: str) -> str:
    """The project's file in or above a directory, or the file that `path` names."""
    from conductor.places import PROJECT_FILE, find_project_file

    path = os.path.abspath(os.path.expanduser(path))
    if os.path.basename(path) == PROJECT_FILE:
        return os.path.join(os.path.realpath(os.path.dirname(path)), PROJECT_FILE)
    if not os.path.isdir(path):
        raise click.UsageError(f"{path} is no directory, and no file called {PROJECT_FILE}")
    found = find_project_file(path, trusted_first=False)
    if found is None:
        _refuse_outside_projects(os.path.join(os.path.realpath(path), PROJECT_FILE))
        raise click.UsageError(f"there is no {PROJECT_FILE} in {path}, or above it")
    return found


def _refuse_outside_projects(path: str) -> None:
    """A usage error for a file in the home directory or `/`, where sessions do not look."""
    from conductor.places import PROJECT_FILE, config_directory, ends_search

    if ends_search(os.path.dirname(path)):
        directory, own = os.path.dirname(path), os.path.join(config_directory(), "chain.yaml")
        raise click.UsageError(
            f"{directory} is no project: a {PROJECT_FILE} there is not used. Proxies for all of "
            f"your sessions stand in {own}"
        )


def _shown(path: str) -> dict[str, str]:
    """Print what a project's file runs; returns the hashes of its files as they were read."""
    from conductor.chainfile.project_file import Untrusted, read_project_file
    from conductor.cli.load import report
    from conductor.cli.terminal_text import printable
    from conductor.errors import ChainFileError

    try:
        found = read_project_file(path, os.environ)
    except Untrusted as exc:
        remedy = f"; {exc.remedy}" if exc.remedy else ""
        raise click.ClickException(f"{path} {exc}{remedy}") from None
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)
    for file, text in found.texts.items():
        click.echo(printable(f"{file}:"))
        for line in text.splitlines():
            click.echo(printable(f"  {line}"))
    for file in sorted(found.files.keys() - found.texts.keys()):
        click.echo(printable(f"with {file}"))
    click.echo("It runs:")
    for component in found.chain.flat():
        click.echo(printable(f"  {_program(component)}"))
    _warn(found.chain.flat())
    return dict(found.files)


def _warn(components: Sequence[ComponentSpec]) -> None:
    """Print a warning for each component that would not start: sessions of the project would fail.
    Nothing is imported or run."""
    from conductor.chainfile import Diagnostic, SourceLocation
    from conductor.cli.check.components import check_commands, check_registry
    from conductor.cli.load import print_diagnostics
    from conductor.errors import StartError
    from conductor.plugins.loading import check_name

    problems = check_commands(components)
    for spec in components:
        if spec.use is None:
            continue
        try:
            check_name(spec)
        except StartError as exc:
            location = spec.locations.get(("use",)) or spec.location
            location = location or SourceLocation.whole(spec.name)
            problems.append(Diagnostic(location, exc.reason, severity="warning"))
    if any(spec.registry is not None for spec in components):
        problems += check_registry(components)
    print_diagnostics(problems)


def _program(component: ComponentSpec) -> str:
    """The command or URL of a component, unmasked: the user decides by it."""
    if component.run is not None:
        return f"{component.name}: {shlex.join(component.run)}"
    if component.registry is not None:
        return f"{component.name}: {component.registry.name} of the registry"
    remote = component.connect or component.unix
    where = "in this process, " if component.use and not component.isolate else ""
    return f"{component.name}: {where}{component.use or f'connects to {remote}'}"


def _list() -> None:
    from conductor.chainfile.project_file import has_hashes
    from conductor.chainfile.trust_store import trusted_files
    from conductor.cli.terminal_text import printable

    entries = trusted_files()
    if not entries:
        click.echo("You trust no project's file.", err=True)
    for entry in entries:
        state = "" if has_hashes(entry.files) else "  (changed since: its sessions are refused)"
        click.echo(printable(f"{entry.path}{state}"))


@click.command("untrust")
@click.argument("path", default=".", type=click.Path())
def untrust_command(path: str) -> None:
    """No longer use the chain file of a project in new sessions; the opposite of `trust`.

    PATH may also be a file that no longer exists.

    \b
    Examples:
      acp-conductor untrust
      acp-conductor untrust ~/src/project/.acp-conductor.yaml
    """
    from conductor.chainfile.trust_store import forget
    from conductor.places import PROJECT_FILE

    try:
        found = project_path(path)
    except click.UsageError as exc:
        named = f"acp-conductor untrust PATH/{PROJECT_FILE}"
        raise click.UsageError(f"{exc.message}. If it was deleted, name it: {named}") from None
    try:
        was_trusted = forget(found)
    except OSError as exc:
        raise click.ClickException(str(exc)) from None
    click.echo(f"{'No longer trusted' if was_trusted else 'It was not trusted'}: {found}")
    if not was_trusted:
        sys.exit(1)
