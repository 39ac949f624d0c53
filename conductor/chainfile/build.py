"""Build a `ChainFile` from the validated items of a file.

Paths become absolute and names unique. A component without a name is named after its command; the
second `uvx` is `uvx-2`. Given names are assigned first, so a derived name never takes one. `/` is
reserved for joining the names of nested chains.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from conductor.chainfile.document import Document
from conductor.chainfile.keys import declaration, key_names
from conductor.chainfile.model import (
    Adaptation,
    AdapterItem,
    ChainFile,
    ComponentSpec,
    FileItem,
    ValuePath,
)
from conductor.chainfile.paths import absolute, command_name, untaken_name

__all__ = ["build_chain"]

_T = TypeVar("_T")


def build_chain(
    file: dict[str, Any],
    items: Sequence[tuple[ValuePath, dict[str, Any]]],
    document: Document,
    nested: Mapping[ValuePath, ChainFile],
    path: str,
    directory: str,
) -> ChainFile:
    """Build the chain. `file` has the values of the keys of `FileItem`, by field; `items` those of
    the components, with their paths in the file, the agent last."""
    lock = os.path.join(directory, f"{_file_name(path)}.lock")
    names = _unique_names(
        [
            (
                item.get("name")
                or _derived_name(
                    item,
                    _argv_without_variables(item.get("run"), where, document),
                    nested.get(where),
                ),
                item.get("name") is not None,
            )
            for where, item in items
        ]
    )
    components = []
    for (where, item), name in zip(items, names, strict=True):
        if (registry := item.get("registry")) is not None:
            item["registry"] = msgspec.structs.replace(
                registry,
                lock=lock,
                source=file.get("registry"),
                install_scripts=item.get("install_scripts", False),
            )
        item |= {"name": name, "chain": nested.get(where)}
        components.append(_component(item, where, document, directory))
    has_agent = bool(items) and items[-1][0] == ("agent",)
    return ChainFile(
        **file
        | {
            "path": path,
            "name": file.get("name") or _file_name(path),
            "proxies": tuple(components[:-1] if has_agent else components),
            "agent": components[-1] if has_agent else None,
            "adapt": _adaptations(file.get("adapt"), document),
            "given": frozenset(
                path
                for path in document.keys
                if len(path) <= 2
                and (key := str(path[0])) in key_names(FileItem)
                and declaration(FileItem, key).merged
            ),
        }
    )


def _adaptations(item: msgspec.Struct | None, document: Document) -> dict[str, Adaptation]:
    found = {}
    for name, value in ({} if item is None else msgspec.structs.asdict(item)).items():
        location = document.locations.get(("adapt", name))
        if isinstance(value, AdapterItem):
            found[name] = Adaptation(value.mode, value.options, location)
        elif value is not None:
            found[name] = Adaptation(value, location=location)
    return found


def _component(
    item: dict[str, Any], where: ValuePath, document: Document, directory: str
) -> ComponentSpec:
    run, use, cwd = item.get("run"), item.get("use"), item.get("cwd")
    if item.get("ssh") is None:  # else its paths are on another machine
        if run and "/" in run[0]:
            item["run"] = (absolute(directory, run[0]), *run[1:])
        if cwd:
            item["cwd"] = absolute(directory, cwd)
    if use and ".py:" in use:
        file, _, cls = use.rpartition(":")
        item["use"] = f"{absolute(directory, file)}:{cls}"
    return ComponentSpec(
        **item,
        location=document.locations[where],
        locations=_relative_paths(where, document.locations),
        key_locations=_relative_paths(where, document.keys),
        written=_relative_paths(where, document.written),
        directory=directory,
    )


def _file_name(path: str) -> str:
    """The name of a chain or a socket: its file name without the suffix."""
    return os.path.splitext(os.path.basename(path))[0] or "chain"


def _argv_without_variables(
    run: Sequence[str] | None, where: ValuePath, document: Document
) -> Sequence[str] | None:
    """The command without the arguments that contain a variable: their values may be secret."""
    if run is None:
        return None
    program, *words = run
    kept = [
        word
        for index, word in enumerate(words, 1)
        if (*where, "run", index) not in document.written
    ]
    return [program, *kept]


def _derived_name(
    item: Mapping[str, Any], run: Sequence[str] | None, chain: ChainFile | None
) -> str:
    """A name derived from the command, class, entry point, host, socket or nested chain."""
    if run:
        name = command_name(run)
    elif use := item.get("use"):
        name = use.rpartition(":")[2]
    elif registry := item.get("registry"):
        name = registry.name
    elif connect := item.get("connect"):
        from urllib.parse import urlsplit

        name = urlsplit(connect).hostname or ""
    elif unix := item.get("unix"):
        name = _file_name(unix)
    else:
        name = chain.name if chain else ""
    return name.replace("/", "-") or "component"


def _unique_names(names: Sequence[tuple[str, bool]]) -> list[str]:
    """Make names unique, keeping their order. `names`: (name, whether the user gave it)."""
    taken = {name for name, given in names if given}
    return [name if given else untaken_name(name, taken) for name, given in names]


def _relative_paths(where: ValuePath, everything: Mapping[ValuePath, _T]) -> dict[ValuePath, _T]:
    depth = len(where)
    return {
        path[depth:]: value
        for path, value in everything.items()
        if len(path) > depth and path[:depth] == where
    }
