"""A chain as its files say it: versions of the registry, programs that are missing, probable
mistakes in the options and the order of its proxies; the files of the user and of projects."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from typing import Final

from conductor.chain.chooser import OtherFiles
from conductor.chainfile.diagnostics import Diagnostic
from conductor.chainfile.layers import trusted_chain
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.chainfile.project_file import Untrusted, read_user_file
from conductor.chainfile.trust_store import trusted_files
from conductor.chainfile.when import Facts, agent_names, client_facts, unmet_conditions
from conductor.cli.check.components import check_commands, check_registry, registry_lines
from conductor.cli.doctor.finding import Finding, Severity
from conductor.cli.plugin_checks import check_plugins
from conductor.errors import ChainFileError
from conductor.places import find_project_file, user_chain_file

__all__ = [
    "gather_warnings",
    "missing_program_findings",
    "other_project_findings",
    "project_findings",
    "proxy_findings",
    "version_findings",
]

_PROXY_LIMIT: Final = 2.0
"""Seconds for a proxy; the start of the chain tells if one takes longer."""


def version_findings(file: ChainFile) -> Iterator[Finding]:
    """Findings about all components with `registry`; uses no network."""
    specs = [spec for spec in file.flat() if spec.registry is not None]
    if not specs:
        return
    for problem in check_registry(specs):
        yield Finding(
            "error" if problem.severity == "error" else "warning",
            "versions",
            problem.message,
            problem.help,
        )
    for line in registry_lines(specs):
        yield Finding("ok", "versions", line)


def gather_warnings(chain: ChainFile) -> list[Diagnostic]:
    """The warnings of `check`. Errors are left out: the start of the chain reports them.

    Call it before any other process is started (`check_plugins`).
    """
    if all(spec.use is None for spec in chain.flat()):
        return []
    found = check_plugins([chain], start_timeout=_PROXY_LIMIT)
    return [problem for problem in found if problem.severity == "warning"]


def proxy_findings(warnings: Iterable[Diagnostic]) -> Iterator[Finding]:
    """Findings with the place in the file, and that of the other proxy."""
    for warning in warnings:
        lines = [f"{warning.location}: {warning.message}"]
        if warning.note is not None:
            lines.append(f"{warning.note[0]}: {warning.note[1]}")
        yield Finding("warning", "proxies", "\n".join(lines), warning.help)


def missing_program_findings(chain: ChainFile, cwd: str) -> Iterator[Finding]:
    """Findings about all components; those that a session of `doctor` in `cwd` does not have are
    only warnings."""
    specs = chain.flat()
    left_out = unmet_conditions(
        specs, client_facts(None, Facts(os.environ, cwd, agent_names(chain)))
    )
    for spec in specs:
        condition = left_out.get(spec.name)
        if condition is None:
            yield from _missing_programs([spec], "the chain does not start", "error")
        else:
            where = f"left out here, without {condition}; elsewhere it does not start"
            yield from _missing_programs([spec], where, "warning")


def project_findings(cwd: str, others: OtherFiles) -> Iterator[Finding]:
    """Findings about the files that are added to a chain in `cwd`; none without such files."""
    user = user_chain_file() if others.user else None
    if user is not None:
        try:
            count = len(read_user_file(user, os.environ).proxies)
        except ChainFileError as exc:
            help = "correct it: no chain of `run` and `wrap` starts with it, but for --no-user"
            yield Finding("error", "projects", str(exc), help)
        else:
            yield Finding("ok", "projects", f"{user} adds {_proxies(count)} to every chain")
    path = find_project_file(cwd) if others.project else None
    if path is None:
        return
    try:
        count = len(trusted_chain(path, os.environ).proxies)
    except Untrusted as exc:
        help = f"to use it in sessions of this project: acp-conductor trust {shlex.quote(path)}"
        yield Finding("warning", "projects", f"{path} {exc}", exc.remedy or help)
    except ChainFileError as exc:
        yield Finding("error", "projects", str(exc), "correct it: sessions of this project fail")
    else:
        yield Finding(
            "ok", "projects", f"{path} is trusted, and adds {_proxies(count)} to its sessions"
        )


def other_project_findings(cwd: str) -> Iterator[Finding]:
    """Findings about the trusted files of projects other than that of `cwd`."""
    here = find_project_file(cwd)
    for entry in trusted_files():
        if entry.path == here:
            continue
        try:
            specs = trusted_chain(entry.path, os.environ).flat()
        except Untrusted:  # it has no effect, and `trust` is asked for when it is needed
            continue
        except ChainFileError as exc:
            yield Finding("warning", "projects", str(exc), "sessions of that project fail")
            continue
        yield from _missing_programs(specs, "sessions of that project fail", "warning")


def _missing_programs(
    specs: Iterable[ComponentSpec], consequence: str, severity: Severity
) -> Iterator[Finding]:
    """Findings about programs that do not exist; `consequence`: what follows from it."""
    for problem in check_commands(specs, names_path=False):
        message = f"{problem.location}: {problem.message}; {consequence}"
        yield Finding(severity, "programs", message, problem.help)


def _proxies(count: int) -> str:
    return "1 proxy" if count == 1 else f"{count} proxies"
