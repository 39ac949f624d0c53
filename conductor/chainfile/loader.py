"""Load a chain file and the files it nests; collect the diagnostics of all of them.

Checking continues after a mistake, and nested files are loaded even if the file that names them has
mistakes. A file that is nested twice is read once. No component is looked up or started.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from conductor.chainfile.build import build_chain
from conductor.chainfile.converter import Converter
from conductor.chainfile.diagnostics import (
    INVALID,
    Diagnostic,
    InvalidValue,
    SourceLocation,
    SourceText,
    ValueContext,
    closest_match,
    in_file_order,
    path_label,
    to_diagnostic,
)
from conductor.chainfile.document import Document, read_document
from conductor.chainfile.grammar import file_converter
from conductor.chainfile.model import (
    MAX_PROXIES,
    AgentItem,
    ChainFile,
    ComponentItem,
    FileItem,
    ValuePath,
)
from conductor.chainfile.paths import absolute, files_read, from_working_directory
from conductor.chainfile.trust_store import UnreadableFile
from conductor.errors import ChainFileError
from conductor.files import open_as_given, open_regular

__all__ = ["load_and_diagnose", "load_chain", "read_chain_file"]

MAX_FILE_BYTES = 256 * 1024
MAX_NESTING = 16

_DESCRIPTOR_PATHS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
_RELATIVE_PATH_HELP = "a relative path begins at the file that it stands in"
_VERSION_HELP = "this conductor reads files that begin with `version: 1`"
_MINIMAL_FILE_HELP = """the smallest chain file is
version: 1
agent:
  run: [my-agent]"""


def load_chain(
    path: str,
    environ: Mapping[str, str],
    allow_special_files: bool = False,
    read: Callable[[str], bytes] | None = None,
) -> ChainFile:
    """See `conductor.chainfile.load`. `read` reads the files in place of `read_chain_file`."""
    chain, diagnostics = load_and_diagnose(path, environ, allow_special_files, read)
    if chain is None or diagnostics:
        raise ChainFileError(diagnostics)
    return chain


def load_and_diagnose(
    path: str,
    environ: Mapping[str, str],
    allow_special_files: bool = False,
    read: Callable[[str], bytes] | None = None,
) -> tuple[ChainFile | None, list[Diagnostic]]:
    """The chain as far as it can be read, and the diagnostics of all its files.

    If there are diagnostics, the chain is incomplete and only fit for checks of its components.
    `read` reads the files in place of `read_chain_file`.
    """
    loading = _Loader(environ, allow_special_files, read)
    try:
        chain = loading.load(path, ())
    except UnreadableFile as error:
        return None, [Diagnostic(SourceLocation.whole(path), str(error))]
    return chain, loading.diagnostics


class _Loader(msgspec.Struct, eq=False):
    """State of one `load` call: chains by real path, and diagnostics.

    The parameter `opened` is the stack of files being read: (real path, path as the user wrote it).
    """

    environ: Mapping[str, str]
    allow_special_files: bool = False
    read: Callable[[str], bytes] | None = None
    loaded: dict[str, ChainFile | None] = msgspec.field(default_factory=dict)
    mistaken: set[str] = msgspec.field(default_factory=set)
    """Real paths of files with mistakes, of which only some components are known."""
    diagnostics: list[Diagnostic] = msgspec.field(default_factory=list)

    def load(self, path: str, opened: tuple[tuple[str, str], ...]) -> ChainFile | None:
        """The chain of a file, as far as it can be read. Raises `UnreadableFile`."""
        real = os.path.realpath(from_working_directory(path))
        if real not in self.loaded:
            is_open = path.startswith(_DESCRIPTOR_PATHS)
            allowed = not opened and (self.allow_special_files or is_open)
            data = self.read(path) if self.read else read_chain_file(path, special=allowed)
            self.loaded[real] = None
            if not is_open:
                files_read.add(from_working_directory(path))
            try:
                self.loaded[real] = self.chain(path, data, (*opened, (real, path)))
            except ChainFileError as error:
                self.diagnostics += error.diagnostics
        return self.loaded[real]

    def chain(
        self, path: str, data: bytes, opened: tuple[tuple[str, str], ...]
    ) -> ChainFile | None:
        before = len(self.diagnostics)
        directory = os.path.dirname(from_working_directory(path))
        source = _decode(path, data)
        document = read_document(source, self.environ)
        diagnostics = document.diagnostics
        converter = file_converter(directory)
        file = _structure(document, converter)
        nested = {}
        for where, component in _components(document):
            text = component.get("chain")
            if isinstance(text, str) and text and (*where, "chain") not in document.unusable:
                inner = self.nested(document, where, text, path, opened)
                if inner is not None:
                    nested[where] = inner
        diagnostics += _repeated_names(document)
        diagnostics += _too_many_proxies(document, nested)
        self.diagnostics[before:before] = in_file_order(diagnostics)
        if file is None:
            self.mistaken.add(opened[-1][0])
            file, items = {}, list(_understood(document, converter))
        else:
            items = [
                (("proxies", index), item) for index, item in enumerate(file.get("proxies", ()))
            ]
            if file.get("agent") is not None:
                items.append((("agent",), file["agent"]))
        return build_chain(file, items, document, nested, path, directory)

    def nested(
        self,
        document: Document,
        where: ValuePath,
        text: str,
        path: str,
        opened: tuple[tuple[str, str], ...],
    ) -> ChainFile | None:
        """The nested chain that a component names, as far as it can be read."""
        location = document.locations[*where, "chain"]
        inner_path = absolute(os.path.dirname(path), text)
        real_paths = [real for real, _ in opened]
        real = os.path.realpath(from_working_directory(inner_path))
        if real in real_paths:
            circle = [name for _, name in opened[real_paths.index(real) :]]
            message = f"a chain contains itself: {' → '.join([*circle, circle[0]])}"
            document.diagnostics.append(Diagnostic(location, message))
            return None
        if len(opened) >= MAX_NESTING:
            message = f"chains nest more than {MAX_NESTING} deep"
            document.diagnostics.append(Diagnostic(location, message))
            return None
        try:
            chain = self.load(inner_path, opened)
        except UnreadableFile as error:
            document.diagnostics.append(Diagnostic(location, str(error), help=_RELATIVE_PATH_HELP))
            return None
        if chain is None or real in self.mistaken:
            return chain  # it is uncertain whether it has an agent
        is_agent = where == ("agent",)
        if is_agent and chain.agent is None:
            message = "this chain has no agent, so it cannot be one"
            help = "name it among the `proxies`, or give it an `agent:`"
            document.diagnostics.append(Diagnostic(location, message, help=help))
        if not is_agent and chain.agent is not None:
            message = "this chain has an agent of its own, so it cannot be a proxy"
            agent = chain.agent.location
            note = (agent, "its agent") if agent else None
            help = "name it as the `agent:`, or take the agent out of it"
            document.diagnostics.append(Diagnostic(location, message, note, help))
        return chain


def read_chain_file(path: str, *, special: bool = False) -> bytes:
    """The bytes of a file. Special files are opened only with `special`: opening a named pipe
    blocks until it has a writer. Raises `UnreadableFile`."""
    try:
        with open_as_given(path) if special else os.fdopen(open_regular(path), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UnreadableFile("there is no such file") from None
    except IsADirectoryError:
        raise UnreadableFile("this is a directory, not a chain file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a path"
        raise UnreadableFile(f"the file cannot be read: {reason.lower()}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableFile(f"a chain file is at most {MAX_FILE_BYTES // 1024} KiB long")
    return data


def _decode(path: str, data: bytes) -> SourceText:
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return SourceText(path, data.decode())
    except UnicodeDecodeError as error:
        source = SourceText(path, data.decode(errors="replace"))
        start = len(data[: error.start].decode())
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        problem = Diagnostic(
            source.location(start, start + 1), message, help="save the file as UTF-8"
        )
        raise ChainFileError([problem]) from error


def _structure(document: Document, converter: Converter) -> dict[str, Any] | None:
    """Its values by field; None if it has mistakes, which go to `document.diagnostics`."""
    root = document.locations[()]
    if not isinstance(document.data, dict):
        message = "a chain file is a mapping of keys to values"
        raise ChainFileError([Diagnostic(root, message, help=_MINIMAL_FILE_HELP)])
    version = document.data.get("version", INVALID)
    if version is INVALID:
        document.diagnostics.append(
            Diagnostic(root, "the key `version` is missing", help=_VERSION_HELP)
        )
    elif version != "1" and ("version",) not in document.unusable:
        # The version decides what the keys mean: report nothing else.
        message = "this version of the chain file format is not known"
        raise ChainFileError(
            [Diagnostic(document.locations["version",], message, help=_VERSION_HELP)]
        )
    needed = ("proxies", "agent")
    if not {*needed} & set(document.data) and not any(
        closest_match(key, needed) for key in document.data
    ):
        message = "the chain is empty: it has neither `proxies` nor an `agent`"
        document.diagnostics.append(Diagnostic(root, message, help=_MINIMAL_FILE_HELP))
    if document.data.get("agent", INVALID) is None:
        help = "without the key, the file is a proxy chain"
        message = "agent: expected a component, found nothing"
        document.diagnostics.append(Diagnostic(document.locations["agent",], message, help=help))
    try:
        file: dict[str, Any] = converter.structure(document.data, FileItem)
    except InvalidValue as mistakes:
        values = ValueContext(
            document.data, document.locations, document.keys, document.written, root
        )
        for found in mistakes.found:
            if found.at_key or found.path not in document.unusable:
                problem = to_diagnostic(found, values, path_label(_component_relative(found.path)))
                document.diagnostics.append(problem)
        return None
    return file


def _understood(
    document: Document, converter: Converter
) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """The components without mistakes, in a file that has some."""
    for where, component in _components(document):
        with suppress(InvalidValue):
            yield (
                where,
                converter.structure(component, AgentItem if where == ("agent",) else ComponentItem),
            )


def _component_relative(path: ValuePath) -> ValuePath:
    """The path relative to its component; the caret shows which component it is."""
    if path[:1] == ("proxies",) and len(path) > 1:
        return path[2:]
    return path[1:] if path[:1] == ("agent",) and len(path) > 1 else path


def _components(document: Document) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """Every mapping of the file in the position of a component, the agent last."""
    proxies, agent = document.data.get("proxies"), document.data.get("agent")
    for index, component in enumerate(proxies if isinstance(proxies, list) else ()):
        if isinstance(component, dict):
            yield ("proxies", index), component
    if isinstance(agent, dict):
        yield ("agent",), agent


def _repeated_names(document: Document) -> Iterator[Diagnostic]:
    first: dict[str, SourceLocation] = {}
    for where, component in _components(document):
        name = component.get("name")
        path = (*where, "name")
        if not isinstance(name, str) or path in document.unusable:
            continue
        location = document.locations[path]
        if name in first:
            note = (first[name], "first given here")
            yield Diagnostic(location, "two components have the same name", note)
        first.setdefault(name, location)


def _too_many_proxies(
    document: Document, nested: Mapping[ValuePath, ChainFile]
) -> Iterator[Diagnostic]:
    total = 0
    for where, _ in _components(document):
        # An empty chain counts as one: it bounds the work that a file can cause.
        more = max(1, _count(nested[where])) if where in nested else int(where != ("agent",))
        if total <= MAX_PROXIES < total + more:
            message = f"a chain has at most {MAX_PROXIES} proxies, those of nested chains included"
            yield Diagnostic(document.locations[where], message)
        total += more


def _count(chain: ChainFile) -> int:
    agent = _count(chain.agent.chain) if chain.agent and chain.agent.chain else 0
    return agent + sum(max(1, _count(each.chain)) if each.chain else 1 for each in chain.proxies)
