"""Merge the chains of the user, the command and the project into one. Pure.

Proxies: the user's first, nearest the client, then the command's, then the project's, next to the
agent. The agent is the command's. Of `mcp_bridge`, `mcp` and `limits`, a value that the project's
file contains replaces that of the command's file, and that replaces the user's. All else belongs to
the command's file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from conductor.chainfile.model import ChainFile, ComponentSpec

__all__ = ["merged"]


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
    renamed = []
    for proxy in proxies:
        name, number = proxy.name, 1
        while name in taken:
            number += 1
            name = f"{proxy.name}-{number}"
        taken.add(name)
        renamed.append(msgspec.structs.replace(proxy, name=name))
    return tuple(renamed)
