"""Programs that only other sessions start: of components that `when:` leaves out here, and of other
projects whose file the user trusts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.check.programs import check_commands
from conductor.cli.doctor.finding import Finding
from conductor.errors import ChainFileError
from conductor.projects.layers import trusted_chain
from conductor.projects.places import find_project_file
from conductor.projects.project_file import Untrusted
from conductor.projects.trust_store import trusted_files
from conductor.projects.when import Facts, agent_names, client_facts, unmet_conditions

__all__ = ["left_out_findings", "other_project_findings"]


def left_out_findings(
    chain: ChainFile, cwd: str, environ: Mapping[str, str] = os.environ
) -> Iterator[Finding]:
    """Findings about the components that a session of `doctor` in `cwd` does not have."""
    specs = chain.flat()
    left_out = unmet_conditions(specs, client_facts(None, Facts(environ, cwd, agent_names(chain))))
    for spec in specs:
        if spec.name in left_out:
            where = f"left out here, without {left_out[spec.name]}; elsewhere it does not start"
            yield from _missing([spec], where)


def other_project_findings(cwd: str, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Findings about the trusted files of projects other than that of `cwd`."""
    here = find_project_file(cwd)
    for entry in trusted_files():
        if entry.path == here:
            continue
        try:
            specs = trusted_chain(entry.path, environ).flat()
        except Untrusted:  # it has no effect, and `trust` is asked for when it is needed
            continue
        except ChainFileError as exc:
            yield Finding("warning", "projects", str(exc), "sessions of that project fail")
            continue
        yield from _missing(specs, "sessions of that project fail")


def _missing(specs: Iterable[ComponentSpec], consequence: str) -> Iterator[Finding]:
    for problem in check_commands(specs, names_path=False):
        message = f"{problem.location}: {problem.message}; {consequence}"
        yield Finding("warning", "programs", message, problem.help)
