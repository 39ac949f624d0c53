"""Read a project's chain file, with all files that decide which programs it runs.

These are the file, the chain files that it nests or that an option names, the Python files of its
plugins (`use: ./x.py:Class`) with the modules beside them that they import, its lock file, and its
registry. What was hashed is what is used: chain files are parsed from these bytes, and components
have them with them (`ComponentSpec.files`). With the hashes that the user trusts, reading stops at
the first file that differs: an untrusted file is not parsed. The loader is imported when a file is
read: YAML takes 8 ms, and a start without a project's file does without.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import msgspec

from conductor.chainfile.diagnostics import Diagnostic, SourceLocation
from conductor.chainfile.model import NEVER_BESIDE_PLUGINS, ChainFile, ComponentSpec
from conductor.chainfile.paths import absolute
from conductor.chainfile.trust_store import TrustedFile, UnreadableFile, UnsafeFile, read_own_file
from conductor.errors import ChainFileError

__all__ = [
    "ProjectFile",
    "Untrusted",
    "has_hashes",
    "not_trusted_yet",
    "read_project_file",
    "read_trusted_file",
    "read_user_file",
    "trusted_agent_file",
]

MAX_MODULES: Final = 1000
"""Python files of the plugins of one project."""
_NO_FILE: Final = "-"
"""In place of the hash of a lock file that does not exist."""


class Untrusted(Exception):
    """A project's file must have no effect; the text is the reason, a clause without subject, with
    the path of another file only. `remedy`: what to do, if `trust` would refuse the file."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.remedy = remedy


class ProjectFile(msgspec.Struct, frozen=True):
    """A project's chain of proxies."""

    chain: ChainFile
    files: Mapping[str, str]
    """SHA-256 of its files by absolute path."""
    texts: Mapping[str, str] = {}
    """Its chain files by path, as they were read."""


@attrs.define(eq=False)
class _HashingReader:
    """Reads and hashes files; with `expected`, raises `Untrusted` for one with another hash."""

    project: str
    """The project's file, which errors do not name."""
    expected: Mapping[str, str] | None
    files: dict[str, str] = attrs.field(factory=dict)
    contents: dict[str, bytes] = attrs.field(factory=dict)

    def read(self, path: str) -> bytes:
        try:
            data = read_own_file(path)
        except UnsafeFile as exc:
            named = "" if path == self.project else f"{path}: "
            raise Untrusted(f"is not used: {named}{exc.reason}", exc.remedy) from None
        self.add(path, hashlib.sha256(data).hexdigest())
        self.contents[os.path.abspath(path)] = data
        return data

    def add(self, path: str, digest: str) -> None:
        path = os.path.abspath(path)
        if self.expected is not None and self.expected.get(path) != digest:
            named = "" if path == self.project else f" ({path})"
            raise Untrusted(f"has changed since you trusted it{named}")
        self.files[path] = digest

    def add_file(self, path: str, *, optional: bool) -> None:
        try:
            self.read(path)
        except UnreadableFile:
            if not optional:
                raise Untrusted(f"is not used: there is no file {path}") from None
            self.add(path, _NO_FILE)

    def exists(self, path: str) -> bool:
        """Whether there is a file that counts: of those that are trusted, if some are."""
        return os.path.lexists(path) if self.expected is None else path in self.expected

    def add_components(self, chain: ChainFile, environ: Mapping[str, str]) -> None:
        """Read what decides which programs the components of a chain run."""
        for spec in chain.flat():
            if spec.use is not None and ".py:" in spec.use:
                self.add_plugin(spec.use.rpartition(":")[0])
            if spec.registry is not None:
                self.add_file(spec.registry.lock, optional=True)
                if spec.registry.source is not None and "://" not in spec.registry.source:
                    self.add_file(spec.registry.source, optional=True)
            for text in spec.option_texts():
                if text.endswith((".yaml", ".yml")):
                    self.add_agent(absolute(spec.directory or "", text), environ)

    def add_plugin(self, file: str) -> None:
        """Read a plugin file and the modules beside it that its import statements name."""
        self.add_file(file, optional=False)
        directory = os.path.dirname(file)
        known = {file}
        waiting: list[tuple[str, tuple[str, ...]]] = [(file, ())]
        while waiting:
            path, package = waiting.pop()
            for name in _imported(self.contents[path], package):
                for length in range(1, len(name) + 1):
                    base = os.path.join(directory, *name[:length])
                    inner = os.path.join(base, "__init__.py")
                    found = next(filter(self.exists, (inner, f"{base}.py")), None)
                    if found is None:
                        break
                    if found not in known:
                        known.add(found)
                        if len(known) > MAX_MODULES:
                            raise Untrusted(f"is not used: {file} imports too many modules")
                        self.add_file(found, optional=False)
                        waiting.append((found, name[: length if found == inner else length - 1]))

    def add_agent(self, path: str, environ: Mapping[str, str]) -> None:
        """Read a chain file that an option names, if it is one, for the second agent of a proxy."""
        from conductor.chainfile.loader import load_and_diagnose

        if path in self.files or not self.exists(path):
            return
        if self.expected is None:
            trial = _HashingReader(path, None)
            chain, diagnostics = load_and_diagnose(path, environ, read=trial.read)
            if chain is None or diagnostics:
                return  # another file, which is only read
        chain, _ = load_and_diagnose(path, environ, read=self.read)
        if chain is not None:
            self.add_components(chain, environ)


def _imported(source: bytes, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The names of modules that the import statements of a source may mean, from the directory of
    the plugin; `package` is that of the source."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # its import fails
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*base, alias.name) for alias in node.names]
        else:
            continue
        is_relative = isinstance(node, ast.ImportFrom) and node.level
        yield from (name for name in names if is_relative or name[0] not in NEVER_BESIDE_PLUGINS)


def read_project_file(
    path: str, environ: Mapping[str, str], expected: Mapping[str, str] | None = None
) -> ProjectFile:
    """Read a project's file; with `expected`, only if all its files have these hashes.

    Raises `Untrusted`, also for a file that others can change, and `ChainFileError` for mistakes.
    """
    from conductor.chainfile.loader import load_chain

    reader = _HashingReader(path, expected)
    if expected is not None:  # before a nested file is opened: it contains the path
        try:
            reader.read(path)
        except UnreadableFile as exc:
            raise Untrusted(f"is not used: {exc}") from None
    chain = load_chain(path, environ, read=reader.read)
    _refuse_agent(chain)
    texts = {path: data.decode(errors="replace") for path, data in reader.contents.items()}
    reader.add_components(chain, environ)
    return ProjectFile(_with_files(chain, reader.contents), reader.files, texts)


def read_trusted_file(entry: TrustedFile, environ: Mapping[str, str]) -> ProjectFile:
    """Read a project's file that the user trusts.

    Raises `ChainFileError` for one that has changed or is gone, too: a session without the
    permissions and the redaction that the user relies on is worse than none.
    """
    try:
        return read_project_file(entry.path, environ, entry.files)
    except Untrusted as exc:
        path = shlex.quote(entry.path)
        help = exc.remedy or (
            f"to see what it runs now, and to trust it: acp-conductor trust {path}; to do without "
            f"it: acp-conductor untrust {path}"
        )
        where = SourceLocation.whole(entry.path)
        raise ChainFileError([Diagnostic(where, f"the file {exc}", help=help)]) from None


def trusted_agent_file(
    path: str, environ: Mapping[str, str], files: Mapping[str, bytes]
) -> ChainFile:
    """The chain file of a second agent of a project's proxy, from the content that is trusted.

    Raises `ChainFileError`.
    """
    from conductor.chainfile.loader import load_chain

    def read(path: str) -> bytes:
        try:
            return files[os.path.abspath(path)]
        except KeyError:
            raise UnreadableFile("the user has not trusted it with the project's file") from None

    chain = load_chain(path, environ, read=read)
    return _with_files(chain, files)


def _with_files(chain: ChainFile, files: Mapping[str, bytes]) -> ChainFile:
    """The chain, with the files that its components may load in each of them."""
    code = {path: data for path, data in files.items() if path.endswith((".py", ".yaml", ".yml"))}

    def component(spec: ComponentSpec) -> ComponentSpec:
        inner = None if spec.chain is None else _with_files(spec.chain, files)
        name = spec.registry
        if name is not None:
            used = {each: files[each] for each in (name.lock, name.source or "") if each in files}
            name = msgspec.structs.replace(name, files=used)
        return msgspec.structs.replace(spec, chain=inner, registry=name, files=code)

    agent = None if chain.agent is None else component(chain.agent)
    return msgspec.structs.replace(chain, proxies=tuple(map(component, chain.proxies)), agent=agent)


def not_trusted_yet(path: str) -> Untrusted:
    """Why a project's file that is not trusted has no effect; one that `trust` refuses says so."""
    try:
        _HashingReader(path, None).read(path)
    except Untrusted as exc:
        return exc
    except UnreadableFile as exc:
        return Untrusted(f"is not used: {exc}")
    return Untrusted("is not trusted yet")


def has_hashes(files: Mapping[str, str]) -> bool:
    """Whether the files still have these hashes."""
    reader = _HashingReader("", files)
    try:
        for path, digest in files.items():
            reader.add_file(path, optional=digest == _NO_FILE)
    except Untrusted:
        return False
    return True


def read_user_file(path: str, environ: Mapping[str, str]) -> ChainFile:
    """The user's `chain.yaml`. Raises `ChainFileError`, also if others can change the file."""
    from conductor.chainfile.loader import load_chain

    def read(path: str) -> bytes:
        return read_own_file(os.path.realpath(path))  # links are the user's

    chain = load_chain(path, environ, read=read)
    _refuse_agent(chain)
    return chain


def _refuse_agent(chain: ChainFile) -> None:
    """Raise `ChainFileError` for a chain with an agent: only that of the command has one."""
    if chain.agent is not None:
        location = chain.agent.location or SourceLocation.whole(chain.path)
        message = "this file adds proxies to other chains, so it has no `agent:`"
        help = "take it out; the agent is that of the chain that the editor starts"
        raise ChainFileError([Diagnostic(location, message, help=help)])
