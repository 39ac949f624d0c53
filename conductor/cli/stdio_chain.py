"""Serve a chain on stdin and stdout: shared by `run`, `agent`, `proxy` and `connect`."""

from __future__ import annotations

import gc
import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import attrs

from conductor.chain.build import build_components
from conductor.chain.start_failure_text import FailureContext
from conductor.chain.stdio_server import serve_stdio
from conductor.chainfile.model import ChainFile, ComponentSpec, OnStartFailure
from conductor.cli.load import load_chain, report
from conductor.errors import ChainFileError, CommandLineError
from conductor.routing.component import Component
from conductor.transport.spawn import has_prestarted, prestart_all

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
) -> NoReturn:
    """Serve a chain that is in no file; never returns. Each attempt to start takes the same."""
    explains = (on_start_failure or "explain") == "explain"
    _serve(chain, lambda: _build(chain), _explained(None) if explains else None, trace)


def serve_path(
    path: str,
    mode: Mode | None = None,
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
) -> NoReturn:
    """Serve the chain of a file; never returns. Mistakes in the file are reported to the client.

    `mode=None` accepts both kinds of chain, and a pipe as file. `on_start_failure` overrides the
    file's setting.
    """
    load = partial(load_chain, path, _REQUIRED_KIND[mode], allow_special_files=mode is None)
    serve_from_file(path, load, mode or "agent", on_start_failure, trace)


def serve_from_file(
    path: str,
    load: Callable[[], ChainFile],
    mode: Mode = "agent",
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
) -> NoReturn:
    """As `serve_path`; `load` reads the file, and raises `ChainFileError`."""
    try:
        chain = load()
    except ChainFileError as exc:
        serve_invalid(path, exc, mode, on_start_failure, trace, load)
    serve_file(chain, on_start_failure, trace, load)


def serve_file(
    chain: ChainFile,
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    load: Callable[[], ChainFile] | None = None,
) -> NoReturn:
    """Serve a chain: to an editor if it has an agent, else to a conductor; never returns.

    `load` reads it again for a later attempt to start.
    """
    mode: Mode = "proxy" if chain.agent is None else "agent"
    explains = (on_start_failure or chain.on_start_failure or "explain") == "explain"
    failure_context = _explained(chain.path) if explains and mode == "agent" else None
    again = load or partial(load_chain, chain.path, _REQUIRED_KIND[mode])
    if chain.prewarm and mode == "agent" and not has_prestarted():
        from conductor.chain.local_programs import local_programs

        prestart_all(local_programs(chain))
    _serve(chain, _ChainReloader(chain.path, again, chain).make, failure_context, trace)


def serve_invalid(
    path: str,
    error: ChainFileError,
    mode: Mode = "agent",
    on_start_failure: OnStartFailure | None = None,
    trace: TraceWriter | None = None,
    load: Callable[[], ChainFile] | None = None,
) -> NoReturn:
    """Report the mistakes of a file on stderr and in the response to `initialize`.

    The file is read again (`load`) for every attempt to start. On a terminal, only stderr is used.
    """
    report(error)
    if os.isatty(0):
        sys.exit(2)
    explains = (on_start_failure or "explain") == "explain" and mode == "agent"
    serve_stdio(
        _ChainReloader(path, load or partial(load_chain, path, _REQUIRED_KIND[mode]), error).make,
        mode=mode,
        bridged=False,
        failure_context=_explained(path) if explains else None,
        unusable=True,
        trace=trace,
    )


def serve_unusable_arguments(mistake: CommandLineError, *, mode: Mode, explains: bool) -> NoReturn:
    """Answer `initialize` with a usage error, or explain it in the chat; never returns."""

    def make() -> NoReturn:
        raise mistake

    failure_context = _explained(None) if explains else None
    serve_stdio(make, mode=mode, bridged=False, failure_context=failure_context, unusable=True)


@attrs.define
class _ChainReloader:
    """Builds the components of a chain file; reloads the file before every later attempt."""

    path: str
    load: Callable[[], ChainFile]
    known: ChainFile | ChainFileError
    """The result of the last load."""
    _tried: bool = False

    def make(self) -> list[Component]:
        if self._tried and not _is_pipe(self.path):
            self._read()
        self._tried = True
        if isinstance(self.known, ChainFileError):
            raise self.known
        return _build(self.known)

    def _read(self) -> None:
        _reset_plugin_files()
        try:
            self.known = self.load()
        except ChainFileError as exc:
            self.known = exc


def _is_pipe(path: str) -> bool:
    """Whether a path is a pipe, as in `run <(make-a-chain)`."""
    return os.path.exists(path) and not os.path.isfile(path)


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
) -> NoReturn:
    serve_stdio(
        make,
        mode="proxy" if chain.agent is None else "agent",
        limits=chain.limits,
        stop_timeout=chain.stop_timeout,
        bridged=False,  # the bridge declares the MCP capabilities itself
        failure_context=failure_context,
        name=chain.name,
        trace=trace,
    )


def _build(chain: ChainFile) -> list[Component]:
    mode: Mode = "proxy" if chain.agent is None else "agent"
    try:
        return build_components(
            chain.flat(), mode=mode, mcp_bridge=chain.mcp_bridge, mcp=chain.mcp, limits=chain.limits
        )
    finally:
        _collect_garbage()


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


def _reset_plugin_files() -> None:
    """Drop imported plugin files, so that a corrected file is imported again."""
    if "conductor.plugins.file_imports" in sys.modules:
        from conductor.plugins.file_imports import forget_imported_files

        forget_imported_files()


def _collect_garbage() -> None:
    """Enable the collector that `main` disabled; imported objects are exempt from it."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
