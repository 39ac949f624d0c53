"""`try --watch`: runs the command again, in a new process, after each change of the proxy's files.

The Python files in the directory of the proxy are looked at twice a second; a file counts as
changed if its time of modification or its size has changed. A run that is still going on is ended
first.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import click
import trio

from conductor.cli.try_proxy.target import TargetError, watched_directory

__all__ = ["changed_files", "file_stamps", "watch_and_run"]

_INTERVAL: Final = 0.5
_STOP_TIMEOUT: Final = 5.0
Stamps: TypeAlias = Mapping[str, tuple[int, int]]


def watch_and_run(target: str, arguments: Sequence[str]) -> NoReturn:
    """Run `acp-conductor` with these arguments until a signal; exit with 128 and its number."""
    try:
        directory = Path(watched_directory(target))
    except TargetError as exc:
        raise click.UsageError(str(exc)) from exc
    command = [sys.executable, "-P", "-m", "conductor", *arguments]
    sys.exit(trio.run(_run_until_signal, directory, command))


async def _run_until_signal(directory: Path, command: Sequence[str]) -> int:
    """Return the exit code."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, directory, command)
            async for number in signals:
                nursery.cancel_scope.cancel()
                return 128 + number
    raise AssertionError("signals end only with the loop")


async def _watch(directory: Path, command: Sequence[str]) -> None:
    stamps = file_stamps(directory)
    while True:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_run, command, directory)
            changed, stamps = await _wait_for_change(directory, stamps)
            nursery.cancel_scope.cancel()
        click.echo(f"\n--- {', '.join(changed)} changed ---\n")


async def _wait_for_change(directory: Path, before: Stamps) -> tuple[list[str], Stamps]:
    """Return the names of the changed files, and the new stamps."""
    while True:
        await trio.sleep(_INTERVAL)
        stamps = file_stamps(directory)
        if changed := changed_files(before, stamps):
            return changed, stamps


async def _run(command: Sequence[str], directory: Path) -> None:
    """Run the command once. If cancelled, ask it to end, then kill it."""
    await trio.run_process(
        command, check=False, stdin=None, deliver_cancel=_end, env=dict(os.environ)
    )
    click.echo(f"\n--- waiting for changes in {directory} ---")


async def _end(process: trio.Process) -> None:
    process.terminate()
    await trio.sleep(_STOP_TIMEOUT)
    process.kill()


def file_stamps(directory: Path) -> Stamps:
    """Time of modification and size of the Python files in a directory, by name."""
    stamps = {}
    for path in directory.glob("*.py"):
        with suppress(OSError):  # removed meanwhile
            status = path.stat()
            stamps[path.name] = (status.st_mtime_ns, status.st_size)
    return stamps


def changed_files(before: Stamps, after: Stamps) -> list[str]:
    """The names of files that were changed, added or removed, sorted."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
