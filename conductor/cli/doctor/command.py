"""`acp-conductor doctor [FILE]`: what is wrong on this machine or with a chain, and what to do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from conductor.cli.log_defaults import log_for_people
from conductor.cli.other_files import CHAIN_PATH

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile
    from conductor.cli.doctor.finding import Finding

__all__ = ["command"]


@click.command("doctor")
@click.argument("file", required=False, type=CHAIN_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
@click.pass_context
def command(ctx: click.Context, /, file: str | None, *, as_json: bool) -> None:
    """Find out what is wrong on this machine, or with a chain, and what to do about it.

    Looks at Python, PATH, node, npx and uvx, at who can change files, at directories for state, at
    entries in editors, and at chain files of the user and of the project of the working directory.
    With FILE also at the versions of the lock file; it starts the chain as an editor does, opens a
    session in the working directory, and then starts the MCP servers of `mcp_servers`, together. No
    prompt is sent. Exit codes: 0 nothing is wrong (there may be warnings), 1 something is, 2
    mistakes in the chain file.

    \b
    Examples:
      acp-conductor doctor
      acp-conductor doctor review.yaml
      acp-conductor doctor review.yaml --json | jq 'select(.severity == "error")'
    """
    log_for_people(ctx)
    from conductor.chain.stdio_server import exit_now
    from conductor.cli.doctor.finding import in_order, is_wrong, text_lines
    from conductor.cli.load import read_chain
    from conductor.redaction import redact, register_environment

    chain = None if file is None else read_chain(file)
    register_environment(os.environ)
    stdout = os.dup(1)
    os.dup2(2, 1)  # plugins of the chain run in this process
    findings = list(_machine_findings(chain))
    if chain is not None:
        findings += _chain_findings(chain)
    if as_json:
        lines = [json.dumps(finding.as_json()) for finding in in_order(findings)]
    else:
        lines = list(text_lines(findings))
    sys.stdout.flush()
    with os.fdopen(stdout, "w") as out:
        out.write(redact("\n".join(lines)) + "\n")
    exit_now(1 if is_wrong(findings) else 0)


def _machine_findings(chain: ChainFile | None) -> Iterator[Finding]:
    from conductor.chainfile.paths import working_directory
    from conductor.cli.doctor import editors, files, machine, projects, state, versions
    from conductor.cli.doctor.mcp_servers import added_servers

    needed: set[str] = set()
    paths = files.state_directories()
    if chain is not None:
        specs = chain.flat()
        commands = [spec.run for spec in specs if spec.run is not None and spec.ssh is None]
        commands += [server.command for server in added_servers(chain) if server.command]
        needed = {os.path.basename(command[0]) for command in commands}
        paths = files.chain_files(chain) | paths
    yield from machine.machine_findings(machine.gather_machine(os.environ), needed)
    yield from files.file_findings(files.gather_files(paths))
    yield from state.state_findings(state.gather_state(state.state_uses()))
    yield from editors.editor_findings(editors.gather_editors())
    yield from projects.project_findings(working_directory())
    if chain is not None:
        yield from versions.version_findings(chain)


def _chain_findings(chain: ChainFile) -> list[Finding]:
    """Start the chain and the MCP servers; a signal ends the process."""
    import trio

    from conductor.chain.stdio_server import exit_now
    from conductor.cli.doctor import mcp_servers, starts
    from conductor.transport.orphan_guard import start_orphan_guard
    from conductor.transport.process_tree import become_subreaper, kill_descendants

    become_subreaper()
    start_orphan_guard()
    signals: list[int] = []

    def leave() -> NoReturn:
        kill_descendants()
        exit_now(128 + signals[0] if signals else 1)

    found: list[Finding] = []
    try:
        _say_wait("for the chain to start and to open a session")
        start = trio.run(partial(starts.gather_start, chain, signals, leave))
        if signals:
            leave()
        found += starts.start_findings(start)
        if servers := mcp_servers.added_servers(chain):
            limit, names = chain.mcp.start_timeout, ", ".join(server.name for server in servers)
            _say_wait(f"at most {limit:g} s for MCP servers: {names}")
            for result in trio.run(partial(mcp_servers.gather_servers, servers, limit)):
                found += mcp_servers.server_findings(result)
    except* KeyboardInterrupt:  # in a group, from the servers
        signals.append(2)
        leave()
    finally:
        kill_descendants()
    return found


def _say_wait(what: str) -> None:
    """Tell a user at a terminal why there is no output yet."""
    from conductor.cli.terminal_text import printable

    if sys.stderr.isatty():
        print(printable(f"waiting {what}"), file=sys.stderr, flush=True)
