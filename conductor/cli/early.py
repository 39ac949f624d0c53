"""What happens before anything heavy is imported: wait for `initialize`, start the components.

Nothing is started before the client asks for it, and trio is not needed to wait: so the first bytes
are read here, plainly. With `initialize` among them, the components are started at once, and start
while the rest of us is imported. Whatever is unusual is left to the ordinary way, through click.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without its enums: 2.4 ms
import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType

from conductor.log import LEVELS, configure
from conductor.transport.inherited import first_bytes, open_missing_stdio

TYPE_CHECKING = False  # as `typing` has it, which takes 3 ms that an agent can start in
if TYPE_CHECKING:
    from conductor.chainfile import ChainFile
    from conductor.chainfile.glance import Program
    from conductor.errors import ChainFileError

__all__ = ["serve_plainly"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve_plainly(arguments: list[str]) -> None:
    """Serve `agent …`, `proxy …` or `run FILE`, and never return; or, for click to deal with it,
    return because there are options or mistakes."""
    command, words = arguments[0], arguments[1:]
    level = os.environ.get("ACP_CONDUCTOR_LOG", "info")
    if any(word.startswith("-") for word in words) or level not in LEVELS:
        return
    configure(level)
    open_missing_stdio()
    try:
        if command == "run" and len(words) == 1:
            _serve_file(words[0])
        elif command == "agent":
            _serve_commands(words)
    finally:
        _end_what_started()


def _serve_file(path: str) -> None:
    from conductor.cli.lean import import_composer, import_msgspec_and_trio

    import_composer()
    try:
        if os.path.isfile(path) and _client_has_spoken():
            chain = _read_while_programs_start(path)
        else:
            chain = _read_before_programs_start(path)
    except _chain_file_error() as exc:
        _end_what_started()
        import_msgspec_and_trio()
        from conductor.cli.serve_chain import serve_unusable

        serve_unusable(path, exc)
    import_msgspec_and_trio()
    from conductor.cli.serve_chain import serve_file

    serve_file(chain)


def _chain_file_error() -> type[ChainFileError]:
    """Called when an exception is raised: to import the class takes the time of `typing`."""
    from conductor.errors import ChainFileError

    return ChainFileError


def _read_before_programs_start(path: str) -> ChainFile:
    """Somebody who tries out a file is told what is wrong with it before anything else."""
    chain = _read(path)
    if chain.agent is not None and _client_wants_to_start():
        _start(_programs(chain))
    return chain


def _read_while_programs_start(path: str) -> ChainFile:
    """To read a file with care takes 50 ms, which the start of programs hides."""
    from conductor.chainfile.glance import programs

    wanted = _client_wants_to_start()
    if wanted:
        _stand_guard()  # it changes the environment, with which programs are compared
    glanced = programs(path, os.environ) if wanted else []
    _start(glanced)
    chain = _read(path)
    _start_others(glanced, list(_programs(chain)) if wanted and chain.agent is not None else [])
    return chain


def _read(path: str) -> ChainFile:
    from conductor.cli.lean import lean_imports

    with lean_imports():
        from conductor.chainfile import load

        return load(path, any_kind=True)


def _start_others(started: list[Program], programs: list[Program]) -> None:
    """Start what is not started yet; if something was that should not have been, begin again."""
    if all(started.count(program) <= programs.count(program) for program in started):
        for program in started:
            programs.remove(program)
    else:
        _end_what_started()
    _start(programs)


def _programs(chain: ChainFile) -> Iterator[Program]:
    for spec in chain.flat():
        if spec.run is not None and spec.ssh is None:
            yield spec.run, spec.environment(os.environ), spec.cwd


def _serve_commands(words: list[str]) -> None:
    from conductor.cli.words import split_component

    try:
        commands = [split_component(word) for word in words]
    except ValueError:
        return
    if _client_wants_to_start():
        _start((tuple(argv), {**os.environ, **env}, None) for argv, env in commands)
    from conductor.cli.lean import import_msgspec_and_trio

    import_msgspec_and_trio()
    from conductor.cli.arguments import parse_components
    from conductor.cli.serve_chain import serve

    serve(parse_components(words), mode="agent")


def _client_has_spoken() -> bool:
    import select

    return bool(select.select([0], [], [], 0)[0])


def _client_wants_to_start() -> bool:
    """Wait for the client's first bytes; they are kept for `transport.stdio` to begin with."""
    for number in _SIGNALS:
        signal.signal(number, _leave)
    try:
        first_bytes.append(os.read(0, 65536))
    except OSError:
        return False
    return b'"initialize"' in first_bytes[0]


def _start(programs: Iterable[Program]) -> None:
    from conductor.transport.spawning import start_early

    _stand_guard()
    for argv, env, cwd in programs:
        start_early(argv, env=env, cwd=cwd)


def _stand_guard() -> None:
    """Before the first program is started, so that nothing is left whenever we are killed."""
    from conductor.transport.guard import start_guard
    from conductor.transport.spawning import adopt_orphans

    adopt_orphans()
    start_guard()


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal before there is anything to stop in order."""
    _end_what_started()
    sys.stderr.flush()
    os._exit(128 + number)


def _end_what_started() -> None:
    """Unless the chain has it, which ends it in its own way; and what that has started."""
    spawning = sys.modules.get("conductor.transport.spawning")
    if hasattr(spawning, "end_early"):
        spawning.end_early()  # type: ignore[union-attr]
        spawning.kill_descendants()  # type: ignore[union-attr]
