"""Chain files of the user and of projects; programs that they lack."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from conductor.chain.chooser import OtherFiles
from conductor.chainfile.layers import trusted_chain
from conductor.chainfile.project_file import Untrusted, read_user_file
from conductor.chainfile.trust_store import trusted_files
from conductor.cli.doctor.chain import missing_programs
from conductor.cli.doctor.finding import Finding
from conductor.errors import ChainFileError
from conductor.places import find_project_file, user_chain_file

__all__ = ["other_project_findings", "project_findings"]


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
        yield from missing_programs(specs, "sessions of that project fail", "warning")
