"""The user's and the project's chain for a directory, with a remark on each, for commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

import msgspec

from conductor.chainfile.model import ChainFile
from conductor.projects.places import find_project_file, user_chain_file
from conductor.projects.project_file import (
    Untrusted,
    not_trusted_yet,
    read_trusted_file,
    read_user_file,
)
from conductor.projects.trust_store import trusted_file

__all__ = ["Layers", "gather_layers", "trusted_chain"]


class Layers(msgspec.Struct, frozen=True):
    """The chains around that of the command."""

    user: ChainFile | None = None
    project: ChainFile | None = None
    remarks: tuple[str, ...] = ()
    """A line for each file that was found."""
    refused: str | None = None
    """The project's file, if it is not used."""


def gather_layers(
    cwd: str, environ: Mapping[str, str], *, user: bool = True, project: bool = True
) -> Layers:
    """Read the files for a session in `cwd`. Raises `ChainFileError`."""
    remarks = []
    user_path = user_chain_file() if user else None
    of_user = None
    if user_path is not None:
        of_user = read_user_file(user_path, environ)
        remarks.append(f"user: {user_path}")
    path = find_project_file(cwd) if project else None
    of_project, refused = None, None
    if path is not None:
        try:
            of_project = trusted_chain(path, environ)
            remarks.append(f"project: {path}")
        except Untrusted as exc:
            refused = path
            remarks.append(f"project: {path} {exc}; {exc.remedy or _trust_command(cwd)}")
    return Layers(of_user, of_project, tuple(remarks), refused)


def _trust_command(cwd: str) -> str:
    """The command that shows the project's file of a directory; short in that directory."""
    where = "" if cwd == os.getcwd() else f" {shlex.quote(cwd)}"
    return f"to see what it runs: acp-conductor trust{where}"


def trusted_chain(path: str, environ: Mapping[str, str]) -> ChainFile:
    """The chain of a project's file. Raises `Untrusted` and `ChainFileError`."""
    entry = trusted_file(path)
    if entry is None:
        raise not_trusted_yet(path)
    return read_trusted_file(entry, environ).chain
