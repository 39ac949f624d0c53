"""The user's and the project's chain around that of the command.

Proxies: the user's first, nearest the client, then the command's, then the project's, next to the
agent. The agent is the command's. Of the settings with `Key.merged`, a value that the project's
file contains replaces that of the command's file, and that replaces the user's. All else belongs to
the command's file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.chainfile.paths import untaken_name, working_directory
from conductor.chainfile.project_file import (
    Untrusted,
    not_trusted_yet,
    read_trusted_file,
    read_user_file,
)
from conductor.chainfile.trust_store import trusted_file
from conductor.directories import same_directory
from conductor.places import find_project_file, user_chain_file

__all__ = ["Layers", "gather_layers", "merged", "trusted_chain"]


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
    where = "" if same_directory(cwd, working_directory()) else f" {shlex.quote(cwd)}"
    return f"to see what it runs: acp-conductor trust{where}"


def trusted_chain(path: str, environ: Mapping[str, str]) -> ChainFile:
    """The chain of a project's file. Raises `Untrusted` and `ChainFileError`."""
    entry = trusted_file(path)
    if entry is None:
        raise not_trusted_yet(path)
    return read_trusted_file(entry, environ).chain


def merged(
    command: ChainFile, user: ChainFile | None = None, project: ChainFile | None = None
) -> ChainFile:
    """The chain of all three. The command's components keep their names; of the others, a second
    `context` is `context-2`."""
    if user is None and project is None:
        return command
    files = [file for file in (user, command, project) if file is not None]
    taken = {spec.name for spec in (*command.proxies, *filter(None, [command.agent]))}
    before = () if user is None else _renamed(user.proxies, taken)
    after = () if project is None else _renamed(project.proxies, taken)
    chain = msgspec.structs.replace(command, proxies=(*before, *command.proxies, *after))
    for file in files:
        chain = _with_settings(chain, file)
    given = frozenset(path for file in files for path in file.given)
    return msgspec.structs.replace(chain, given=given)


def _with_settings(chain: ChainFile, file: ChainFile) -> ChainFile:
    """The chain with the settings that a file contains."""
    changed: dict[str, Any] = {}
    for path in file.given:
        key = str(path[0])
        value = getattr(file, key)
        if len(path) == 2:
            before = changed.get(key, getattr(chain, key))
            name = str(path[1])
            changed[key] = msgspec.structs.replace(before, **{name: getattr(value, name)})
        elif not isinstance(value, msgspec.Struct):
            changed[key] = value
    return msgspec.structs.replace(chain, **changed)


def _renamed(proxies: Iterable[ComponentSpec], taken: set[str]) -> tuple[ComponentSpec, ...]:
    """The proxies with names that are not taken; these are taken then."""
    return tuple(
        msgspec.structs.replace(proxy, name=untaken_name(proxy.name, taken)) for proxy in proxies
    )
