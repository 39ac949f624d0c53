"""The options `--trace`, `--trace-payloads` and `--view` of commands that run chains."""

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
    view = click.option(
        "--view",
        "is_viewed",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="Show the messages in a browser while the chain runs; the URL is printed to stderr.",
    )
    return file(payloads(view(command)))


def open_trace() -> TraceWriter | None:
    """The trace file of the running command, if it is asked for.

    Raises `click.UsageError` if it cannot be created.
    """
    options = click.get_current_context().meta.get(_META, {})
    name, is_viewed = options.get("trace_file"), options.get("is_viewed", False)
    if name is None and not is_viewed:
        return None
    from pathlib import Path

    from conductor.tracing.trace_file import TraceFile
    from conductor.transport.inherited_stdio import open_missing_stdio

    open_missing_stdio()  # else the file could become stdin or stdout
    payloads = options["trace_payloads"]
    try:
        if not is_viewed:
            return TraceFile(Path(name), payloads)
        from conductor.cli.viewed_trace import ViewedTrace, temporary_trace

        path = temporary_trace() if name is None else Path(name)
        return ViewedTrace(path, payloads, is_temporary=name is None)
    except OSError as exc:
        place = "--view" if name is None else f"--trace {name}"
        raise click.UsageError(f"{place}: {exc.strerror}") from None


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    ctx.meta.setdefault(_META, {})[option.name] = value
    return value
