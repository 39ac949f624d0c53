"""`acp-conductor trace export FILE --FORMAT`"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from conductor.cli.trace.show import filter_options, record_filter
from conductor.files import open_as_given, replacing

if TYPE_CHECKING:
    from conductor.tracing.records import Record

__all__ = ["command"]

_FORMATS: Final = {
    "html": "The page of `trace view`, as one file.",
    "jsonl": "The lines of the file, as they are.",
}
"""The formats with their lines in `--help`."""


def _format_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each format; they set `format`."""
    for name, summary in reversed(_FORMATS.items()):
        command = click.option(f"--{name}", "format", flag_value=name, help=summary)(command)
    return command


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False), metavar="FILE|PID")
@_format_options
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False),
    help="File to write; the default is stdout.",
)
@filter_options
def command(file: str, format: str | None, output: str | None, **criteria: Any) -> None:
    """Write a trace, or the part of it that meets the criteria, in another format.

    Without criteria every record is written; --all is the default. A file is written with mode
    0600, as traces are.

    \b
    Examples:
      acp-conductor trace export t.jsonl --jsonl --session session-1 -o part.jsonl
      acp-conductor trace export t.jsonl --jsonl --errors | jq .payload
      acp-conductor trace export t.jsonl --html -o t.html
    """
    if format is None:
        flags = " or ".join(f"--{name}" for name in _FORMATS)
        raise click.UsageError(f"give a format: {flags}")
    from conductor.cli.trace.reading import lines_and_records

    accepts = record_filter(criteria | {"everything": True}).accepts
    chosen = (each for each in lines_and_records(file) if accepts(each[1]))
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(_encoded(format, file, chosen))
        sys.stdout.buffer.flush()
        return
    with _replacing(output, file) as out:
        out.writelines(_encoded(format, file, chosen))


def _encoded(format: str, path: str, lines: Iterator[tuple[bytes, Record]]) -> Iterator[bytes]:
    """The chosen lines of the file at `path` in a format, in parts."""
    if format == "jsonl":
        return (line for line, _ in lines)
    from conductor.viewer.page import exported_page

    return exported_page(os.path.basename(path), lines)


@contextmanager
def _replacing(output: str, source: str) -> Iterator[BinaryIO]:
    """A new file, which gets the name when it is whole: an older one stays if the export fails.

    Raises `click.UsageError`.
    """
    try:
        if os.path.exists(output) and os.path.samefile(output, source):
            raise click.UsageError(f"--output {output} is the trace file itself.")
        if os.path.exists(output) and not os.path.isfile(output):  # a pipe, a device
            with open_as_given(output, "wb") as out:
                yield out
            return
        with replacing(os.path.realpath(output)) as out:
            yield out
    except OSError as exc:
        raise click.UsageError(f"--output {output}: {exc.strerror}") from exc
