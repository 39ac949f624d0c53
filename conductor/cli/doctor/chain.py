"""A chain as its files say it: versions of the registry, programs that are missing, probable
mistakes in the options and the order of its proxies; the files of the user and of projects."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final

from conductor.chain.chooser import OtherFiles
from conductor.chainfile.layers import trusted_chain
from conductor.chainfile.model import ChainFile
from conductor.chainfile.project_file import Untrusted, read_user_file
from conductor.cli.check.components import check_commands, check_registry, registry_lines
from conductor.cli.doctor.finding import Finding
from conductor.cli.plugin_checks import check_plugins
from conductor.errors import ChainFileError
from conductor.places import find_project_file, user_chain_file

__all__ = ["program_findings", "project_findings", "proxy_findings", "version_findings"]

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


def proxy_findings(chain: ChainFile) -> Iterator[Finding]:
    """The warnings of `check` about options and order, with the place in the file and that of the
    other proxy. Errors are left out: the start of the chain reports them.

    Call it before any other process is started (`check_plugins`).
    """
    if all(spec.use is None for spec in chain.flat()):
        return
    for problem in check_plugins([chain], start_timeout=_PROXY_LIMIT):
        if problem.severity == "warning":
            lines = [f"{problem.location}: {problem.message}"]
            if problem.note is not None:
                lines.append(f"{problem.note[0]}: {problem.note[1]}")
            yield Finding("warning", "proxies", "\n".join(lines), problem.help)


def program_findings(chain: ChainFile) -> Iterator[Finding]:
    """Programs that do not exist: those of components that `when:` leaves out here, too."""
    for problem in check_commands(chain.flat(), names_path=False):
        message = f"{problem.location}: {problem.message}"
        yield Finding("warning", "programs", message, problem.help)


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


def _proxies(count: int) -> str:
    return "1 proxy" if count == 1 else f"{count} proxies"
