"""A chain as its files say it: versions of the registry, programs that are missing, probable
mistakes in the options and the order of its proxies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from conductor.chainfile.diagnostics import Diagnostic
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.chainfile.when import Facts, agent_names, client_facts, unmet_conditions
from conductor.cli.check.components import check_commands, check_registry, registry_lines
from conductor.cli.doctor.finding import Finding, Severity
from conductor.cli.plugin_checks import check_plugins

__all__ = [
    "gather_warnings",
    "missing_program_findings",
    "missing_programs",
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
            yield from missing_programs([spec], "the chain does not start", "error")
        else:
            where = f"left out here, without {condition}; elsewhere it does not start"
            yield from missing_programs([spec], where, "warning")


def missing_programs(
    specs: Iterable[ComponentSpec], consequence: str, severity: Severity
) -> Iterator[Finding]:
    """Findings about programs that do not exist; `consequence`: what follows from it."""
    for problem in check_commands(specs, names_path=False):
        message = f"{problem.location}: {problem.message}; {consequence}"
        yield Finding(severity, "programs", message, problem.help)
