"""Programs that are missing: all of the chain, also of components that `when:` leaves out here, and
those of other projects with a file that the user trusts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from conductor.chainfile.layers import trusted_chain
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.chainfile.project_file import Untrusted
from conductor.chainfile.trust_store import trusted_files
from conductor.chainfile.when import Facts, agent_names, client_facts, unmet_conditions
from conductor.cli.check.programs import check_commands
from conductor.cli.doctor.finding import Finding, Severity
from conductor.errors import ChainFileError
from conductor.places import find_project_file

__all__ = ["missing_program_findings", "other_project_findings"]


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
            yield from _missing([spec], "the chain does not start", "error")
        else:
            where = f"left out here, without {condition}; elsewhere it does not start"
            yield from _missing([spec], where, "warning")


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
        yield from _missing(specs, "sessions of that project fail", "warning")


def _missing(
    specs: Iterable[ComponentSpec], consequence: str, severity: Severity
) -> Iterator[Finding]:
    for problem in check_commands(specs, names_path=False):
        message = f"{problem.location}: {problem.message}; {consequence}"
        yield Finding(severity, "programs", message, problem.help)
