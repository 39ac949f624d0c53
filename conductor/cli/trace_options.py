"""The options `--trace` and `--trace-payloads` of commands that run chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from conductor.tracing.trace_writer import TraceWriter

__all__ = ["open_trace", "trace_options"]

F = TypeVar("F", bound=Callable[..., Any])
_META = "conductor.trace"


def trace_options(command: F) -> F:
    """Add the options; `open_trace` reads them."""
    payloads = click.option(
        "--trace-payloads",
        type=click.Choice(["full", "head", "none"]),
        default="full",
        show_default=True,
        expose_value=False,
        callback=_keep,
        help="What --trace writes of params and results: all, the first 512 bytes, or nothing.",
    )
    file = click.option(
        "--trace",
        "trace_file",
        type=click.Path(dir_okay=False),
        expose_value=False,
        callback=_keep,
        help="Write every message of the chain to FILE, secrets masked; see `acp-conductor trace`.",
        metavar="FILE",
    )
    return file(payloads(command))


def open_trace() -> TraceWriter | None:
    """The trace file of the running command, if it is asked for.

    Raises `click.UsageError` if it cannot be created.
    """
    options = click.get_current_context().meta.get(_META, {})
    if options.get("trace_file") is None:
        return None
    from pathlib import Path

    from conductor.tracing.trace_file import TraceFile
    from conductor.transport.inherited_stdio import open_missing_stdio

    open_missing_stdio()  # else the file could become stdin or stdout
    path = Path(options["trace_file"])
    try:
        return TraceFile(path, options["trace_payloads"])
    except OSError as exc:
        raise click.UsageError(f"--trace {path}: {exc.strerror}") from None


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    ctx.meta.setdefault(_META, {})[option.name] = value
    return value
