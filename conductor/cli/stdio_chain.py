"""Serve a chain on stdin and stdout: shared by `run`, `agent`, `proxy` and `connect`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import attrs

from conductor.chain.build import bridge_component, components_of, spec_of, spec_of_plan
from conductor.chain.components import ChainSpec
from conductor.chain.login_words import terminal_login_of
from conductor.chain.session_chains import ChainChoice
from conductor.chain.start_failure import FailureContext
from conductor.chain.stdio_server import serve_stdio
from conductor.chainfile.model import ChainFile, ComponentSpec, OnStartFailure
from conductor.chainfile.paths import working_directory
from conductor.cli.file_chooser import file_chooser, forget_plugin_files, is_pipe
from conductor.cli.load import load_chain, report
from conductor.cli.terminal_note import note_for_terminals
from conductor.errors import ChainFileError, CommandLineError
from conductor.projects.chooser import ChainChooser, OtherFiles
from conductor.projects.reloadable_chain import ReloadableChain
from conductor.routing.component import Component
from conductor.transport.spawn import prestart_all

if TYPE_CHECKING:
    from conductor.tracing.trace_writer import TraceWriter

__all__ = [
    "serve",
    "serve_chain_of_arguments",
    "serve_file",
    "serve_from_file",
    "serve_invalid",
    "serve_path",
    "serve_unusable_arguments",
]

Mode: TypeAlias = Literal["agent", "proxy"]


def serve(
    components: Sequence[ComponentSpec],
    *,
    mode: Mode,
    on_start_failure: OnStartFailure = "error",
    trace: TraceWriter | None = None,
) -> NoReturn:
    """Serve components given on the command line; never returns. `trace` gets all messages."""
    chain = ChainFile(
        path="<command line>",
        name="conductor",
        proxies=tuple(components if mode == "proxy" else components[:-1]),
        agent=None if mode == "proxy" else components[-1],
    )
    serve_chain_of_arguments(chain, on_start_failure, trace)


def serve_chain_of_arguments(
    chain: ChainFile,
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    others: OtherFiles | None = None,
) -> NoReturn:
    """Serve a chain of command-line arguments; never returns. Each attempt to start uses the same
    chain.

    `others`: which files of the user and the project are used besides, if any.
    """
    explains = (on_start_failure or "explain") == "explain"
    context = _explained(None) if explains else None
    if others is None:
        _serve(chain, lambda: components_of(chain), context, trace)
    chooser = ChainChooser(chain, None, working_directory(), others=others)
    _serve(chooser.likely() or chain, _maker(chooser), context, trace, chooser)


def serve_path(
    path: str,
    mode: Mode | None = None,
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    others: OtherFiles | None = None,
) -> NoReturn:
    """Serve the chain of a file; never returns. Mistakes in the file are reported to the client.

    `mode=None` accepts both kinds of chain, and a pipe as file. `on_start_failure` overrides the
    file's setting. `others`: as for `serve_chain_of_arguments`.
    """
    # A file that becomes a pipe later must not be waited for.
    special = mode is None and is_pipe(path)
    load = partial(load_chain, path, _REQUIRED_KIND[mode], allow_special_files=special)
    serve_from_file(path, load, mode or "agent", on_start_failure, trace, others)


def serve_from_file(
    path: str,
    load: Callable[[], ChainFile],
    mode: Mode = "agent",
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    others: OtherFiles | None = None,
) -> NoReturn:
    """`serve_path` for a file that `load` reads; `load` raises `ChainFileError`."""
    try:
        chain = load()
    except ChainFileError as exc:
        chooser = None if others is None else file_chooser(path, exc, load, others)
        serve_invalid(path, exc, mode, on_start_failure, trace, load, chooser)
    note_for_terminals(chain)
    chooser = None if others is None else file_chooser(path, chain, load, others)
    serve_file(chain, on_start_failure, trace, load, chooser)


def serve_file(
    chain: ChainFile,
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    load: Callable[[], ChainFile] | None = None,
    chooser: ChainChooser | None = None,
) -> NoReturn:
    """Serve a chain: to an editor if it has an agent, else to a conductor; never returns.

    `load` reads it again for a later attempt to start. `chooser` chooses the chain of each session,
    of a chain with an agent.
    """
    mode: Mode = "proxy" if chain.agent is None else "agent"
    explains = (on_start_failure or chain.on_start_failure or "explain") == "explain"
    failure_context = _explained(chain.path) if explains and mode == "agent" else None
    if chooser is not None and mode == "agent":
        chain, make = chooser.likely() or chain, _maker(chooser)
    else:
        chooser = None
        again = load or partial(load_chain, chain.path, _REQUIRED_KIND[mode])
        make = _ChainReloader(chain.path, again, chain).make
    if chain.prewarm and mode == "agent":
        from conductor.chain.launchers import local_programs

        prestart_all(local_programs(chain))
    _serve(chain, make, failure_context, trace, chooser)


def serve_invalid(
    path: str,
    error: ChainFileError,
    mode: Mode = "agent",
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    load: Callable[[], ChainFile] | None = None,
    chooser: ChainChooser | None = None,
) -> NoReturn:
    """Report the mistakes of a file on stderr and in the response to `initialize`.

    The file is read again (`load`, or `chooser`) for every attempt to start. On a terminal, only
    stderr is used.
    """
    report(error)
    if os.isatty(0):
        sys.exit(2)
    explains = (on_start_failure or "explain") == "explain" and mode == "agent"
    again = load or partial(load_chain, path, _REQUIRED_KIND[mode])
    make = _ChainReloader(path, again, error).make if chooser is None else _maker(chooser)
    serve_stdio(
        ChainSpec(make, mode),
        failure_context=_explained(path) if explains else None,
        unusable=True,
        trace=trace,
        choice=None if chooser is None else ChainChoice(chooser, spec_of_plan),
        terminal_login=terminal_login_of(sys.argv[1:]) if mode == "agent" else "kept",
    )


def serve_unusable_arguments(mistake: CommandLineError, *, mode: Mode, explains: bool) -> NoReturn:
    """Answer `initialize` with a usage error, or explain it in the chat; never returns."""

    def make() -> NoReturn:
        raise mistake

    failure_context = _explained(None) if explains else None
    serve_stdio(ChainSpec(make, mode), failure_context=failure_context, unusable=True)


class _ChainReloader:
    """Builds the components of a chain file; reloads the file before every later attempt."""

    def __init__(
        self, path: str, load: Callable[[], ChainFile], known: ChainFile | ChainFileError
    ) -> None:
        """`known` is the result of the last load."""
        again = None if is_pipe(path) else load
        self._files = ReloadableChain(known, again, forget_plugin_files)
        self._tried = False

    def make(self) -> list[Component]:
        if self._tried:
            self._files.reload()
        self._tried = True
        found = self._files.mistakes or self._files.chain
        if isinstance(found, ChainFileError):
            raise found
        return components_of(found)


def _maker(chooser: ChainChooser) -> Callable[[], list[Component]]:
    return lambda: components_of(chooser.first())


_REQUIRED_KIND: dict[Mode | None, Literal["agent", "proxies", "either"]] = {
    "agent": "agent",
    "proxy": "proxies",
    None: "either",
}


def _serve(
    chain: ChainFile,
    make: Callable[[], Sequence[Component]],
    failure_context: FailureContext | None,
    trace: TraceWriter | None,
    chooser: ChainChooser | None = None,
) -> NoReturn:
    spec = spec_of(chain, make)
    if spec.mode == "proxy":
        make_bridge = partial(bridge_component, chain.mcp_bridge, chain.limits, start=chain.mcp)
        spec = attrs.evolve(spec, make_bridge=make_bridge)
    serve_stdio(
        spec,
        failure_context=failure_context,
        name=chain.name,
        trace=trace,
        choice=None if chooser is None else ChainChoice(chooser, spec_of_plan),
        terminal_login="kept" if spec.mode == "proxy" else terminal_login_of(sys.argv[1:]),
    )


def _explained(path: str | None) -> FailureContext:
    return FailureContext(file=None if path is None else os.path.abspath(path), log=_stderr_file())


def _stderr_file() -> str | None:
    """The file that stderr is redirected to; None if unknown."""
    try:
        if stat.S_ISREG(os.fstat(2).st_mode):
            return os.readlink("/proc/self/fd/2")
    except OSError:
        pass
    return None
