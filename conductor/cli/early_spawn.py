"""Start the components of `run`, `agent` and `wrap` before trio and click are imported.

The client's first bytes are read with a plain `os.read`: no component is started before the client
sends `initialize`, except by `run` with `prewarm: true`. Then the programs of the chain are spawned
at once and start up while the rest is imported. Options, usage errors and other commands are left
to click.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from conductor.log import FORMATS, LEVELS, configure, is_json
from conductor.transport.inherited_stdio import open_missing_stdio, prefetched_stdin

if TYPE_CHECKING:
    from conductor.chainfile import ChainFile
    from conductor.cli.wrap_arguments import WrapArguments
    from conductor.transport.local_command import LocalCommand

__all__ = ["serve_early"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve_early(arguments: list[str]) -> None:
    """Serve `agent …`, `run FILE` or `wrap …` and never return; return if there are other options,
    usage errors or another command, which click handles."""
    command, words = arguments[0], arguments[1:]
    level = os.environ.get("ACP_CONDUCTOR_LOG", "info")
    log_format = os.environ.get("ACP_CONDUCTOR_LOG_FORMAT", "auto")
    if command != "wrap" and any(word.startswith("-") for word in words):
        return
    if level not in LEVELS or log_format not in FORMATS:
        return
    configure(level, as_json=is_json(log_format))
    open_missing_stdio()
    try:
        if command == "run" and len(words) == 1:
            _serve_file(words[0])
        elif command == "agent":
            _serve_commands(words)
        elif command == "wrap":
            _serve_wrapped(words)
    finally:
        _end_unclaimed()


def _serve_file(path: str) -> None:
    from functools import partial

    from conductor.chainfile import load
    from conductor.errors import ChainFileError
    from conductor.projects.places import named_chain

    path = named_chain(path)
    again = partial(load, path, allow_special_files=True)
    try:
        chain = again()
    except ChainFileError as exc:
        from conductor.cli.file_chooser import file_chooser
        from conductor.cli.load import missing_chain
        from conductor.cli.stdio_chain import serve_invalid

        mistake = missing_chain(path)
        error = exc if mistake is None else ChainFileError([mistake])
        serve_invalid(path, error, load=again, chooser=file_chooser(path, error, again))
    if os.isatty(0):
        from conductor.cli.terminal_note import note_for_terminals

        note_for_terminals(chain)
    if chain.agent is not None and chain.prewarm:
        _exit_early_on_signals()
    is_awaited = chain.agent is not None and (chain.prewarm or _wait_for_initialize())
    _serve_loaded(path, chain, again, is_awaited)


def _serve_loaded(
    path: str, chain: ChainFile, again: Callable[[], ChainFile], is_awaited: bool
) -> NoReturn:
    """Start the programs of a chain if the client awaits them, and serve it."""
    chooser = None
    if chain.agent is not None:
        from conductor.cli.file_chooser import file_chooser

        chooser = file_chooser(path, chain, again)
        if is_awaited:
            _start_programs(chooser.likely() or chain)
    from conductor.cli.stdio_chain import serve_file

    serve_file(chain, load=again, chooser=chooser)


def _serve_commands(words: list[str]) -> None:
    from conductor.cli.component_argument import split_component

    try:
        commands = [split_component(word) for word in words]
    except ValueError:
        return
    if _wait_for_initialize():
        _start((tuple(argv), {**os.environ, **env}, None) for argv, env in commands)
    from conductor.cli.component_specs import parse_components
    from conductor.cli.stdio_chain import serve

    serve(parse_components(words), mode="agent")


def _serve_wrapped(words: list[str]) -> None:
    from conductor.cli.unwrapped_agent import client_speaks, run_unwrapped
    from conductor.cli.wrap_arguments import split_wrap_arguments

    arguments = split_wrap_arguments(words)
    if arguments is None:
        return
    _exit_early_on_signals()
    if not client_speaks():
        from conductor.cli.wrap_mistakes import warn_of_mistakes

        warn_of_mistakes(arguments.chain, arguments.uses, arguments.argv)
        run_unwrapped(arguments.argv)
    is_initialized = b'"initialize"' in b"".join(prefetched_stdin)
    if arguments.chain is None:
        _serve_uses(arguments, is_initialized)
    else:
        _serve_wrapped_file(arguments.chain, arguments.argv, is_initialized)


def _serve_uses(arguments: WrapArguments, is_initialized: bool) -> None:
    from conductor.cli.component_argument import absolute_program

    if is_initialized:
        _start([(absolute_program(arguments.argv), dict(os.environ), None)])
    from conductor.cli.wrapped_chain import chain_of_uses
    from conductor.projects.chooser import OtherFiles

    try:
        chain = chain_of_uses(arguments.uses, arguments.argv)
    except ValueError:
        return
    from conductor.cli.stdio_chain import serve_chain_of_arguments

    serve_chain_of_arguments(chain, others=OtherFiles())


def _serve_wrapped_file(path: str, argv: tuple[str, ...], is_initialized: bool) -> None:
    from functools import partial

    from conductor.cli.wrapped_chain import load_wrapped_chain
    from conductor.errors import ChainFileError
    from conductor.projects.places import named_chain

    path = named_chain(path)
    load = partial(load_wrapped_chain, path, argv)
    try:
        chain = load()
    except ChainFileError as exc:
        from conductor.cli.file_chooser import file_chooser
        from conductor.cli.stdio_chain import serve_invalid

        serve_invalid(path, exc, load=load, chooser=file_chooser(path, exc, load))
    _serve_loaded(path, chain, load, is_initialized)


def _wait_for_initialize() -> bool:
    """Read the client's first bytes into `prefetched_stdin`; true if they contain `initialize`."""
    _exit_early_on_signals()
    try:
        prefetched_stdin.append(os.read(0, 65536))
    except OSError:
        return False
    return b'"initialize"' in prefetched_stdin[0]


def _exit_early_on_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, _exit_on_signal)
    signal.signal(signal.SIGUSR1, _nothing_recorded)


def _start(programs: Iterable[LocalCommand]) -> None:
    from conductor.transport.spawn import prestart_all

    prestart_all(programs)


def _start_programs(chain: ChainFile) -> None:
    from conductor.chain.local_programs import local_programs

    _start(local_programs(chain))


def _nothing_recorded(number: int, frame: FrameType | None) -> None:
    """Signal handler for SIGUSR1 until the flight recorder runs; by default it ends the process."""


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    """Signal handler until the chain installs its own: kill the started processes and exit."""
    _end_unclaimed()
    sys.stderr.flush()
    os._exit(128 + number)


def _end_unclaimed() -> None:
    """Kill processes that were started early and not taken over by the chain, with descendants."""
    spawn = sys.modules.get("conductor.transport.spawn")
    if hasattr(spawn, "end_prestarted"):  # a signal can arrive during the import of the module
        from conductor.transport.process_tree import kill_descendants

        spawn.end_prestarted()  # type: ignore[union-attr]
        kill_descendants()
