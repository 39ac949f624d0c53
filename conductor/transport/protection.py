"""Files that a program in a sandbox must not change: the conductor trusts or runs them outside.

In: the components of a chain. Out: the same, with the paths that are read-only in each sandbox
(`Sandbox.protect`): the chain files, the plugins, the lock file and the registry, sockets (`unix`)
and certificates of connections, programs of components without a sandbox and of options (`hooks`),
what the user trusts in projects, and the conductor's own directories (configuration with the user's
chains, state with the trust, store, virtual environment). Hidden are those with messages of all
sessions: flight recordings, sockets of `ps` and `trace`. What another sandbox shows cannot be
replaced (`Sandbox.keep`). Programs that run outside are looked for last where one in a sandbox can
put them (`outside_environment`).

A plugin is protected with its directory, in which a new module could take the place of another. If
programs in a sandbox work in that directory, its file alone is protected, and no module beside it
is imported (`ComponentSpec.files`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import escape
from typing import Final

import msgspec

from conductor.chainfile.model import ENTRY_POINT_GROUP, ComponentSpec
from conductor.chainfile.paths import (
    absolute,
    files_read,
    working_directory,
)
from conductor.chainfile.trust_store import trusted_files
from conductor.files import is_below, note_sandboxes, read_regular
from conductor.places import (
    VIEW_PREFIX,
    config_directory,
    runtime_directory,
    state_directory,
)
from conductor.registry.store import store_path
from conductor.transport.spawn import SpawnError

__all__ = ["protected"]

_MAX_SOURCE_BYTES: Final = 1 << 20
_SCRIPTS: Final = (".sh", ".py", ".js")


def protected(specs: Sequence[ComponentSpec]) -> Sequence[ComponentSpec]:
    """The components of a chain, with what is read-only in their sandboxes.

    Raises `SpawnError` if something cannot be protected: a link that could be replaced, a lock file
    that could be created.
    """
    roots = sorted({root for spec in specs for root in spec.writable_paths()})
    if not roots:
        return specs
    own = [config_directory(), state_directory(), str(store_path()), *_runtime_directory()]
    for directory in own:
        if _is_in(os.path.realpath(directory), roots):
            os.makedirs(directory, mode=0o700, exist_ok=True)  # else it could be created inside
    named = [*own, *_plugins(specs, roots), *_chain_files(specs), *_locks(specs, roots)]
    named += [path for spec in specs for path in _connection_files(spec)]
    found = {os.path.realpath(path) for path in named if os.path.exists(path)}
    _refuse_links(named, roots, found)
    found |= {os.path.realpath(path) for entry in trusted_files() for path in entry.files}
    programs = list(_programs(specs))
    found |= {os.path.realpath(path) for path in [sys.prefix, *programs]}
    found |= set(_directories_of_links(programs, roots))
    _refuse_links(programs, roots, found)
    inside = [path for path in found if _is_in(path, roots) and os.path.exists(path)]
    kept = tuple(sorted(each for each in inside if not _is_in(each, {*inside} - {each})))
    note_sandboxes(roots, kept)
    return [_with_protection(spec, specs, kept, roots) for spec in specs]


def _with_protection(
    spec: ComponentSpec, specs: Sequence[ComponentSpec], kept: tuple[str, ...], roots: Sequence[str]
) -> ComponentSpec:
    if spec.sandbox is not None:
        every = tuple(sorted({*spec.sandbox.protect, *kept}))
        own = spec.writable_paths()
        shown = [path for other in specs if other is not spec for path in _shown(other)]
        _refuse_links(shown, own, kept)
        read = tuple(path for path in spec.sandbox.read if os.path.exists(path))
        fixed = {*every, *map(os.path.realpath, read)}
        keep = {
            path
            for path in {*own, *map(os.path.realpath, filter(os.path.exists, shown))}
            if not _is_in(path, fixed) and _is_in(os.path.dirname(path), own)
        }
        sandbox = msgspec.structs.replace(
            spec.sandbox,
            protect=every,
            keep=tuple(sorted(keep)),
            read=read,
            hide=(*spec.sandbox.hide, *_with_messages()),
        )
        return msgspec.structs.replace(spec, sandbox=sandbox)
    file = _plugin_file(spec)
    if file is None or not _shares_directory(file, roots):
        return spec
    try:
        files = {file: read_regular(file, _MAX_SOURCE_BYTES)}
    except OSError:
        files = {}  # loading it says why
    return msgspec.structs.replace(spec, files=files)


def _runtime_directory() -> Iterator[str]:
    with suppress(OSError):  # another user's: there is no socket
        yield str(runtime_directory())


def _with_messages() -> Iterator[str]:
    """Patterns of what has, or gives, messages as they are before and behind every proxy."""
    yield from map(escape, (state_directory(), *_runtime_directory()))
    yield os.path.join(escape(tempfile.gettempdir()), f"{VIEW_PREFIX}*")


def _plugin_file(spec: ComponentSpec) -> str | None:
    """The file of a plugin that is loaded from the disk."""
    is_file = spec.use is not None and ".py:" in spec.use and spec.files is None
    return spec.use.rpartition(":")[0] if is_file and spec.use is not None else None


def _shares_directory(file: str, roots: Iterable[str]) -> bool:
    """Whether a plugin is in a directory in which a program in a sandbox works."""
    directory = os.path.dirname(os.path.realpath(file))
    inside = [root for root in roots if is_below(directory, root)]
    return bool(inside) and any(is_below(root, directory) for root in roots)


def _plugins(specs: Sequence[ComponentSpec], roots: Sequence[str]) -> Iterator[str]:
    for spec in specs:
        yield from spec.files or ()
        file = _plugin_file(spec)
        if file is not None:
            yield file
            if not _shares_directory(file, roots):
                yield os.path.dirname(os.path.realpath(file))
        elif spec.use is not None and ":" not in spec.use:
            yield from _installed_modules(spec.use, roots)


def _installed_modules(name: str, roots: Sequence[str]) -> Iterator[str]:
    """The package of an installed component, or its module; an editable installation has them in a
    workspace. Imports nothing."""
    from importlib import metadata
    from importlib.util import find_spec

    for point in metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        found = None
        with suppress(ImportError, ValueError):
            found = find_spec(point.module.partition(".")[0])
        if found is not None and found.origin is not None:
            directory = os.path.dirname(os.path.realpath(found.origin))
            is_shared = any(is_below(root, directory) for root in roots)
            is_package = found.submodule_search_locations is not None
            yield directory if is_package and not is_shared else found.origin


def _chain_files(specs: Sequence[ComponentSpec]) -> Iterator[str]:
    """The files that were read, and those that options name."""
    yield from sorted(files_read)
    for spec in specs:
        for text in spec.option_texts():
            if text.endswith((".yaml", ".yml")):
                yield absolute(spec.directory or working_directory(), text)


def _locks(specs: Sequence[ComponentSpec], roots: Sequence[str]) -> Iterator[str]:
    """Lock files and registries. Raises `SpawnError` for a lock file that could be created."""
    for spec in specs:
        if spec.registry is None:
            continue
        lock, source = spec.registry.lock, spec.registry.source
        if not os.path.lexists(lock) and _is_in(os.path.realpath(lock), roots):
            raise SpawnError(
                f"{lock}, which would decide what `{spec.registry.name}` is, could be created in a"
                " sandbox: `acp-conductor lock` writes it"
            )
        yield lock
        if source is not None and "://" not in source:
            yield source


def _connection_files(spec: ComponentSpec) -> Iterator[str]:
    """What decides which process or server a connection leads to."""
    tls = spec.tls
    yield from filter(None, (spec.unix, tls and tls.ca, tls and tls.cert, tls and tls.key))


def _programs(specs: Sequence[ComponentSpec]) -> Iterator[str]:
    """The files that commands without a sandbox name, also in options, not what these load."""
    for spec in specs:
        for word in (word for text in spec.option_texts() for word in _words(text)):
            for directory in {spec.directory or working_directory(), working_directory()}:
                file = os.path.join(directory, word)
                if os.path.isfile(file) and (os.access(file, os.X_OK) or file.endswith(_SCRIPTS)):
                    yield file
        if spec.run is None or spec.sandbox is not None or spec.ssh is not None:
            continue
        path = spec.environment(os.environ).get("PATH", os.defpath)
        yield shutil.which(spec.run[0], path=path) or spec.run[0]
        for word in (word for text in spec.run[1:] for word in {text, *_words(text)}):
            file = os.path.join(spec.cwd or working_directory(), word)
            if os.path.isfile(file):
                yield file


def _words(text: str) -> list[str]:
    """The words of a text: those of `sh -c "exec ./x"`, and `./x` of `--config=./x`."""
    return re.split(r"""[\s=;&|'"()]+""", text)


def _shown(spec: ComponentSpec) -> Iterator[str]:
    """What a sandbox shows of the files of this machine, beside those of the system."""
    if spec.sandbox is not None:
        yield from spec.sandbox.workspaces or [spec.cwd or working_directory()]
        yield from (*spec.sandbox.read, *spec.sandbox.write)


def _directories_of_links(programs: Iterable[str], roots: Sequence[str]) -> Iterator[str]:
    """The directories in workspaces of the links to programs (`.venv/bin/python`), which are none
    in which a program in a sandbox works."""
    for link in (link for path in programs if os.path.exists(path) for link in _links(path)):
        directory = os.path.dirname(link)
        if _is_in(link, roots) and not any(is_below(root, directory) for root in roots):
            yield directory


def _refuse_links(paths: Iterable[str], roots: Sequence[str], kept: Iterable[str]) -> None:
    directories = [path for path in kept if _is_in(path, roots) and os.path.isdir(path)]
    for path in paths:
        for link in _links(path) if os.path.exists(path) else ():
            if _is_in(link, roots) and not _is_in(link, directories):
                raise SpawnError(
                    f"{link} is a link that a program in a sandbox could replace: name"
                    f" {os.path.realpath(path)} itself"
                )


def _links(path: str) -> Iterator[str]:
    """The real places of the symbolic links on the way to an existing absolute path."""
    real = os.sep
    for part in path.split(os.sep):
        place = os.path.normpath(os.path.join(real, part))
        if os.path.islink(place):
            yield place
            yield from _links(os.path.join(real, os.readlink(place)))
        real = os.path.realpath(place)


def _is_in(path: str, directories: Iterable[str]) -> bool:
    return any(is_below(path, directory) for directory in directories)
