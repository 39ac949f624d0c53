"""Chain files of the user and of the project of the working directory."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from conductor.chain.chooser import OtherFiles
from conductor.chainfile.layers import trusted_chain
from conductor.chainfile.project_file import Untrusted, read_user_file
from conductor.cli.doctor.finding import Finding
from conductor.errors import ChainFileError
from conductor.places import find_project_file, user_chain_file

__all__ = ["project_findings"]


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
