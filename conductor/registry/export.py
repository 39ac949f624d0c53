"""The registry entry of a chain, so that clients start it as an agent: `registry export`.

The entry starts `acp-conductor` with uvx. A chain of plain programs is written into the arguments;
any other is named by its path, so the entry is for machines that have the file there. Values of
environment variables and options are in no entry.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, Final

import msgspec

from conductor import __version__
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.errors import RegistryError
from conductor.registry.entries import parse_registry

__all__ = ["export_entry", "export_warnings", "portable_arguments"]

_PACKAGE: Final = "acp-conductor"
_GROUP: Final = "conductor.components"
_ID_HELP: Final = (
    "an id begins with a letter and has lower-case letters, digits and hyphens; --id sets it"
)


def export_entry(
    chain: ChainFile,
    path: str,
    *,
    id: str | None = None,
    name: str | None = None,
    description: str | None = None,
) -> dict[str, Any]:
    """The entry, in the form of an `agent.json`. `path` is that of the chain file where the entry
    is used.

    Raises `RegistryError` if the id is not valid, or the reader of registries refuses the entry.
    """
    id = _id_of(chain.name) if id is None else id
    components = " → ".join(component.name for component in chain.flat())
    entry = {
        "id": id,
        "name": name or chain.name,
        "version": __version__,
        "description": description or f"{components}, run by acp-conductor",
        "distribution": {
            "uvx": {
                "package": f"{_PACKAGE}=={__version__}",
                "args": portable_arguments(chain) or ["run", path],
            }
        },
    }
    read = parse_registry(msgspec.json.encode({"agents": [entry]}), "of this entry", "today")
    if id not in read.entries:
        raise RegistryError(f"`{id}` is not a registry id", _ID_HELP)
    return entry


def portable_arguments(chain: ChainFile) -> list[str] | None:
    """The command line for a chain of plain programs; None if it needs its file."""
    rest = msgspec.structs.replace(chain, path="", name="", proxies=(), agent=None)
    if rest != ChainFile(path="", name=""):
        return None
    words = []
    for component in chain.flat():
        if component.run is None or "/" in component.run[0] or not _is_plain(component):
            return None
        words.append(shlex.join(component.run))
    return ["agent", *words]


def export_warnings(chain: ChainFile, path: str) -> Iterator[str]:
    """Warnings about requirements on another machine besides the entry."""
    if portable_arguments(chain) is not None:
        return
    yield f"the entry is for machines that have the chain file at {path}"
    for component in chain.flat():
        for found in entry_points(group=_GROUP, name=component.use or ""):
            package = found.dist.name if found.dist is not None else _PACKAGE
            if package != _PACKAGE:
                yield f"`use: {component.use}` is in the package {package}, which uvx leaves out"


def _is_plain(component: ComponentSpec) -> bool:
    """Whether the component is its command and nothing else."""
    rest = msgspec.structs.replace(
        component, name="", run=None, location=None, locations={}, key_locations={}, directory=None
    )
    return rest == ComponentSpec(name="")


def _id_of(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
