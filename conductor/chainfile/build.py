"""Build a `ChainFile` from the validated items of a file.

Paths become absolute and names unique. A component without a name is named after its command; the
second `uvx` is `uvx-2`. Given names are assigned first, so a derived name never takes one. `/` is
reserved for joining the names of nested chains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from conductor.chainfile import paths
from conductor.chainfile.document import Document
from conductor.chainfile.grammar import (
    AdapterItem,
    AdaptItem,
    AgentItem,
    ComponentItem,
    FileItem,
    SandboxItem,
    TlsItem,
    WhenItem,
)
from conductor.chainfile.model import (
    MERGED_SETTINGS,
    Adaptation,
    ChainFile,
    ComponentSpec,
    Limits,
    McpStart,
    RegistryName,
    Sandbox,
    Tls,
    ValuePath,
    When,
)
from conductor.chainfile.naming import command_name

__all__ = ["build_chain"]

_T = TypeVar("_T")


def build_chain(
    file: FileItem,
    items: Sequence[tuple[ValuePath, ComponentItem]],
    document: Document,
    nested: Mapping[ValuePath, ChainFile],
    path: str,
    directory: str,
) -> ChainFile:
    """Build the chain. `items` are the components with their paths in the file, the agent last."""
    names = _unique_names(
        [
            (
                item.name
                or _derived_name(
                    item, _argv_without_variables(item.run, where, document), nested.get(where)
                ),
                item.name is not None,
            )
            for where, item in items
        ]
    )

    def registry_name(item: ComponentItem) -> RegistryName | None:
        if item.registry is None:
            return None
        lock = os.path.join(directory, f"{_file_name(path)}.lock")
        source = _registry_source(file.registry, directory)
        return RegistryName(item.registry, lock, source, item.install_scripts)

    components = [
        _component(
            item,
            name,
            where,
            nested.get(where),
            document,
            directory,
            registry_name(item),
        )
        for (where, item), name in zip(items, names, strict=True)
    ]
    has_agent = bool(items) and items[-1][0] == ("agent",)
    return ChainFile(
        path=path,
        name=file.name or _file_name(path),
        proxies=tuple(components[:-1] if has_agent else components),
        agent=components[-1] if has_agent else None,
        mcp_bridge=file.mcp_bridge,
        mcp=McpStart(file.mcp.required, file.mcp.start_timeout),
        limits=Limits(**msgspec.structs.asdict(file.limits)),
        adapt=_adaptations(file.adapt, document),
        on_start_failure=file.on_start_failure,
        prewarm=file.prewarm,
        given=frozenset(
            path for path in document.keys if path[0] in MERGED_SETTINGS and len(path) <= 2
        ),
    )


def _adaptations(item: AdaptItem, document: Document) -> dict[str, Adaptation]:
    found = {}
    for name, value in msgspec.structs.asdict(item).items():
        location = document.locations.get(("adapt", name))
        if isinstance(value, AdapterItem):
            found[name] = Adaptation(value.mode, value.options, location)
        elif value is not None:
            found[name] = Adaptation(value, location=location)
    return found


def _settings_of_agent(item: ComponentItem) -> dict[str, Any]:
    if not isinstance(item, AgentItem):
        return {}
    return {
        "cancel_timeout": item.cancel_timeout,
        "session_processes": item.session_processes,
    }


def _component(
    item: ComponentItem,
    name: str,
    where: ValuePath,
    chain: ChainFile | None,
    document: Document,
    directory: str,
    registry: RegistryName | None,
) -> ComponentSpec:
    def absolute(text: str) -> str:
        return paths.absolute(directory, text)

    run, use, tls = item.run, item.use, item.tls
    is_remote = item.ssh is not None  # its paths are on another machine
    if run and "/" in run[0] and not is_remote:
        run = (absolute(run[0]), *run[1:])
    if use and ".py:" in use:
        file, _, cls = use.rpartition(":")
        use = f"{absolute(file)}:{cls}"
    return ComponentSpec(
        name=name,
        run=run,
        use=use,
        registry=registry,
        connect=item.connect,
        unix=absolute(item.unix) if item.unix else None,
        chain=chain,
        options=item.options,
        env=item.env,
        secrets=item.secrets,
        inherit_env=item.inherit_env,
        cwd=absolute(item.cwd) if item.cwd and not is_remote else item.cwd,
        sandbox=_sandbox(item.sandbox, absolute),
        isolate=item.isolate,
        ssh=item.ssh,
        headers=item.headers,
        tls=None if tls is None else _tls(tls, absolute),
        ping_timeout=item.ping_timeout,
        dialect=item.dialect,
        start_timeout=item.start_timeout,
        stop_timeout=item.stop_timeout,
        request_timeout=item.request_timeout,
        stall_timeout=item.stall_timeout,
        on_stall=item.on_stall,
        on_cancel_timeout=item.on_cancel_timeout,
        **_settings_of_agent(item),
        on_failure=item.on_failure,
        restarts=item.restarts,
        required=item.required,
        when=() if item.when is None else (_when(item.when, absolute),),
        location=document.locations[where],
        locations=_relative_paths(where, document.locations),
        key_locations=_relative_paths(where, document.keys),
        written=_relative_paths(where, document.written),
        directory=directory,
    )


def _sandbox(item: SandboxItem | bool, absolute: Callable[[str], str]) -> Sandbox | None:
    if isinstance(item, bool):
        return Sandbox() if item else None
    written = item.workspaces
    if isinstance(written, dict):
        workspaces = {absolute(path): os.path.normpath(to) for path, to in written.items()}
    else:
        workspaces = {absolute(path): absolute(path) for path in written}
    return Sandbox(
        workspaces=workspaces,
        read=tuple(map(absolute, item.read)),
        write=tuple(map(absolute, item.write)),
        hide=tuple(map(os.path.expanduser, item.hide)),
        network=item.network,
        pass_env=tuple(item.pass_env),
    )


def _when(item: WhenItem, absolute: Callable[[str], str]) -> When:
    def values(value: Sequence[str] | str | None) -> tuple[str, ...]:
        return (value,) if isinstance(value, str) else tuple(value or ())

    return When(
        client=values(item.client),
        agent=values(item.agent),
        cwd=tuple(map(absolute, values(item.cwd))),
        capability=values(item.capability),
        env=values(item.env),
    )


def _tls(tls: TlsItem, absolute: Callable[[str], str]) -> Tls:
    files = {
        name: absolute(file)
        for name, file in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key))
        if file is not None
    }
    return Tls(**files, server_name=tls.server_name, verify=tls.verify)


def _registry_source(written: str | None, directory: str) -> str | None:
    if written is None or "://" in written:
        return written
    return paths.absolute(directory, written)


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


def _derived_name(item: ComponentItem, run: Sequence[str] | None, chain: ChainFile | None) -> str:
    """A name derived from the command, class, entry point, host, socket or nested chain."""
    if run:
        name = command_name(run)
    elif item.use:
        name = item.use.rpartition(":")[2]
    elif item.registry:
        name = item.registry
    elif item.connect:
        from urllib.parse import urlsplit

        name = urlsplit(item.connect).hostname or ""
    elif item.unix:
        name = _file_name(item.unix)
    else:
        name = chain.name if chain else ""
    return name.replace("/", "-") or "component"


def _unique_names(names: Sequence[tuple[str, bool]]) -> list[str]:
    """Make names unique, keeping their order. `names`: (name, whether the user gave it)."""
    taken = {name for name, given in names if given}
    unique = []
    for name, given in names:
        if not given:
            stem, number = name, 1
            while name in taken:
                number += 1
                name = f"{stem}-{number}"
            taken.add(name)
        unique.append(name)
    return unique


def _relative_paths(where: ValuePath, everything: Mapping[ValuePath, _T]) -> dict[ValuePath, _T]:
    depth = len(where)
    return {
        path[depth:]: value
        for path, value in everything.items()
        if len(path) > depth and path[:depth] == where
    }
