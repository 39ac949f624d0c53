"""`acp-conductor check FILE… [--start]`: mistakes in chain files, and at their start."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from conductor.cli.arguments import CHAIN_PATH, other_files_options
from conductor.cli.command_group import log_for_people
from conductor.cli.terminal_text import printable
from conductor.cli.tried_client import client_option

if TYPE_CHECKING:
    from conductor.chain.chooser import OtherFiles
    from conductor.chainfile.diagnostics import Diagnostic
    from conductor.chainfile.model import ChainFile, ComponentSpec
    from conductor.cli.tried_client import TriedClient

__all__ = ["command"]


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=CHAIN_PATH, metavar="FILE...")
@click.option("--start", is_flag=True, help="Start and initialize the chains, and show the result.")
@client_option
@click.option(
    "--trust-plugins",
    "trusts",
    is_flag=True,
    help="Import also the Python files of a project's file that you do not trust.",
)
@other_files_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    start: bool,
    client: TriedClient | None,
    trusts: bool,
    no_project: bool,
    no_user: bool,
) -> None:
    """Report every mistake in chain files; with --start, start the chains, too.

    Probable mistakes, and programs that are not on this machine, are warnings: they do not fail the
    check.

    Without --start no program is run; proxies named by `use:` are imported to check their options,
    in another process, within their `start_timeout`; those in files of a `.acp-conductor.yaml` only
    if you trust it, or with --trust-plugins.
    With --start each chain is started and initialized, as by an editor, and ended: with the proxies
    of the user's `chain.yaml` and of the `.acp-conductor.yaml` of this directory, if you trust it,
    as `run` does. A chain of proxies is tried alone, with the test agent. With --client, as by this
    one: the adapters that it gets are listed. Exit codes: 0 no mistakes, 2 mistakes, 3 a chain did
    not start.

    \b
    Examples:
      acp-conductor check chains/*.yaml
      acp-conductor check --start review.yaml
      acp-conductor check --start --client zed review.yaml
    """
    if client is not None and not start:
        raise click.UsageError("--client needs --start: adapters depend on the agent's answer, too")
    chains, shown = _load_all(files, starts=start, trusts=trusts)
    if not start:
        for chain in chains:
            print(printable(f"{chain.path}: ok: {_summary(chain)}"))
            _print_registry(chain)
        return
    log_for_people(ctx)
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.check.start import start_all

    others = OtherFiles(user=not no_user, project=not no_project)
    merged = [_as_run(chain, others) for chain in chains]
    _warn_of_others(chains, merged, shown)
    start_all(merged, client)


def _as_run(chain: ChainFile, others: OtherFiles) -> ChainFile:
    """The chain with what the files of the user and the project add, which are named on stdout."""
    from conductor.chainfile.paths import working_directory
    from conductor.cli.load import chain_or_exit

    chain, remarks = chain_or_exit(chain, working_directory(), others)
    for remark in remarks:
        print(printable(remark), flush=True)
    return chain


def _warn_of_others(
    chains: list[ChainFile], merged: list[ChainFile], shown: list[Diagnostic]
) -> None:
    """Warn of probable mistakes that the files of the user and the project add; their errors are
    those of the start."""
    changed = [new for old, new in zip(chains, merged, strict=True) if new.flat() != old.flat()]
    if not changed:
        return
    from conductor.cli.load import print_diagnostics
    from conductor.cli.plugin_checks import check_plugins

    found = [each for each in check_plugins(changed) if each.severity == "warning"]
    print_diagnostics(each for each in dict.fromkeys(found) if each not in shown)


def _load_all(
    files: tuple[str, ...], *, starts: bool, trusts: bool
) -> tuple[list[ChainFile], list[Diagnostic]]:
    """The chains and the warnings that were printed; exits with 2 if there are mistakes."""
    from conductor.chainfile.loader import load_and_diagnose
    from conductor.cli.check.components import check_commands
    from conductor.cli.load import missing_chain, print_diagnostics, report
    from conductor.errors import ChainFileError

    chains: list[ChainFile] = []
    diagnostics: list[Diagnostic] = []
    components: list[ComponentSpec] = []
    for file in files:
        if (mistake := missing_chain(file)) is not None:
            diagnostics.append(mistake)
            continue
        chain, found = load_and_diagnose(file, os.environ)
        diagnostics += found
        if chain is not None:
            chains.append(chain)
            components += chain.flat()
    warnings = check_commands(components, names_path=not starts)
    if any(spec.when for spec in components):
        from conductor.cli.check.components import check_conditions

        warnings += [problem for chain in chains for problem in check_conditions(chain)]
    if any(spec.use is not None for spec in components):
        from conductor.cli.plugin_checks import check_plugins

        checked, untrusted = (chains, []) if trusts else _trusted(chains, starts=starts)
        for problem in [*check_plugins(checked), *untrusted]:
            (diagnostics if problem.severity == "error" else warnings).append(problem)
    if any(spec.registry is not None for spec in components):
        from conductor.cli.check.components import check_registry

        for problem in check_registry(components):
            (diagnostics if problem.severity == "error" else warnings).append(problem)
    warnings = list(dict.fromkeys(warnings))
    if diagnostics:
        print_diagnostics(warnings)
        report(ChainFileError(list(dict.fromkeys(diagnostics))))
        sys.exit(2)
    print_diagnostics(warnings)
    return chains, warnings


def _trusted(chains: list[ChainFile], *, starts: bool) -> tuple[list[ChainFile], list[Diagnostic]]:
    """The chains whose plugins may be imported; and a line for each other one, an error if it would
    be started."""
    import msgspec

    from conductor.cli.load import trusted
    from conductor.errors import ChainFileError

    checked, found = [], []
    for chain in chains:
        try:
            checked.append(trusted(chain))
        except ChainFileError as exc:
            if not any(".py:" in (spec.use or "") for spec in chain.flat()):
                checked.append(chain)  # of installed packages
                continue
            for problem in exc.diagnostics:
                message = f"its plugins are not imported: {problem.message}"
                help = "`acp-conductor trust` shows it; --trust-plugins imports them"
                severity = problem.severity if starts else "warning"
                found.append(
                    msgspec.structs.replace(problem, message=message, help=help, severity=severity)
                )
    return checked, found


def _print_registry(chain: ChainFile) -> None:
    components = [spec for spec in chain.flat() if spec.registry is not None]
    if components:
        from conductor.cli.check.components import registry_lines

        print("\n".join(f"  {printable(line)}" for line in registry_lines(components)))


def _summary(chain: ChainFile) -> str:
    components = chain.flat()
    count = len(components) - (chain.agent is not None)
    proxies = f"{count} {'proxy' if count == 1 else 'proxies'}"
    return f"{proxies}, agent {components[-1].name}" if chain.agent else f"{proxies}, no agent"
