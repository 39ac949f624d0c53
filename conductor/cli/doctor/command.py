"""`acp-conductor doctor [FILE]`: what is wrong on this machine or with a chain, and what to do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import click

from conductor.cli.arguments import CHAIN_PATH, other_files_options
from conductor.cli.command_group import log_for_people

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile
    from conductor.cli.doctor.finding import Finding

__all__ = ["command"]


@click.command("doctor")
@click.argument("file", required=False, type=CHAIN_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
@other_files_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: str | None,
    *,
    as_json: bool,
    no_project: bool,
    no_user: bool,
) -> None:
    """Find out what is wrong on this machine, or with a chain, and what to do about it.

    Looks at Python, PATH, node, npx and uvx, at who can change files, at directories for state, at
    entries in editors, at the user's `chain.yaml`, and at the `.acp-conductor.yaml` of the working
    directory: whether you trust it. It starts the chain that a session in the working directory
    gets from `run FILE`, with the proxies of these files (without FILE, these proxies), as an
    editor does, opens a session, and starts the MCP servers of `mcp_servers`: all together, for at
    most 12 seconds. It warns of what `check` warns of: options, and the order of proxies. With FILE
    it looks at the versions of the lock file, too. No prompt is sent.
    Exit codes: 0 nothing is wrong (there may be warnings), 1 something is, 2 mistakes in the chain
    file.

    \b
    Examples:
      acp-conductor doctor
      acp-conductor doctor review.yaml
      acp-conductor doctor review.yaml --json | jq 'select(.severity == "error")'
    """
    log_for_people(ctx)
    from conductor.chain.chooser import OtherFiles
    from conductor.chain.stdio_server import exit_now
    from conductor.chainfile.paths import working_directory
    from conductor.cli.doctor.chain import project_findings
    from conductor.cli.doctor.finding import in_order, is_wrong, text_lines
    from conductor.cli.load import as_trusted, chain_here, read_chain
    from conductor.cli.trial import take_stdout
    from conductor.errors import ChainFileError
    from conductor.secrets.masking import redact, register_environment

    cwd = working_directory()
    chain = None if file is None else as_trusted(read_chain(file))
    others = OtherFiles(user=not no_user, project=not no_project)
    register_environment(os.environ)
    stdout = take_stdout()
    findings = list(project_findings(cwd, others))
    with suppress(ChainFileError):  # a finding of `projects`
        chain = chain_here(chain, cwd, others)
    findings += _machine_findings(chain)

    def report(*more: Finding) -> NoReturn:
        found = [*findings, *more]
        if as_json:
            lines = [json.dumps(finding.as_json()) for finding in in_order(found)]
        else:
            lines = list(text_lines(found))
        sys.stdout.flush()
        with os.fdopen(stdout, "w") as out:
            out.write(redact("\n".join(lines)) + "\n")
        exit_now(1 if is_wrong(found) else 0)

    report(*([] if chain is None else _chain_findings(chain, report)))


def _machine_findings(chain: ChainFile | None) -> Iterator[Finding]:
    from conductor.cli.doctor import chain as chains
    from conductor.cli.doctor import machine
    from conductor.cli.doctor.starts import added_servers

    needed: set[str] = set()
    paths = machine.state_directories()
    if chain is not None:
        specs = chain.flat()
        commands = [spec.run for spec in specs if spec.run is not None and spec.ssh is None]
        commands += [server.command for server in added_servers(chain) if server.command]
        needed = {os.path.basename(command[0]) for command in commands}
        paths = machine.chain_files(chain) | paths
        # First: it ends all processes that this one has started.
        proxies = list(chains.proxy_findings(chain))
    yield from machine.machine_findings(os.environ, needed)
    yield from machine.file_findings(paths)
    yield from machine.state_findings()
    yield from machine.editor_findings()
    if chain is not None:
        yield from chains.program_findings(chain)
        yield from chains.version_findings(chain)
        yield from proxies


def _chain_findings(chain: ChainFile, report: Callable[[Finding], NoReturn]) -> list[Finding]:
    """Start the chain and the MCP servers; a signal ends the process, and so does `report`, if a
    plugin blocks it."""
    import trio

    from conductor.cli.doctor.starts import (
        LIMIT,
        gather_starts,
        server_findings,
        start_findings,
    )
    from conductor.cli.trial import Trial
    from conductor.transport.process_tree import kill_descendants

    trial = Trial(chain, limit=LIMIT)

    def report_blocked(finding: Finding) -> NoReturn:
        kill_descendants()
        report(finding)

    try:
        servers = trio.run(gather_starts, trial, report_blocked)
        if trial.signals:
            trial.leave()
    except KeyboardInterrupt:
        trial.signals.append(2)
        trial.leave()
    finally:
        kill_descendants()
    return [*start_findings(trial), *(each for start in servers for each in server_findings(start))]
