"""The options `--trace`, `--trace-payloads`, `--view` and `--otel` of commands that run chains."""

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
        hidden=True,
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
    otel = click.option(
        "--otel/--no-otel",
        envvar="ACP_CONDUCTOR_OTEL",
        show_envvar=True,
        default=False,
        expose_value=False,
        callback=_keep,
        help="Export OpenTelemetry spans of turns, hops and tool calls over OTLP, and pass "
        "`traceparent` on; the environment variables OTEL_… say where to.",
    )
    return file(payloads(view(otel(command))))


def open_trace() -> TraceWriter | None:
    """The trace writer of the running command; `None` unless a trace or spans are requested.

    Raises `click.UsageError` if it cannot be done.
    """
    options = click.get_current_context().meta.get(_META, {})
    is_exported = bool(options.get("otel"))
    if is_exported:
        _require_otel()
    writer: TraceWriter
    if options.get("trace_file") is not None or options.get("is_viewed"):
        writer = _open_file(options)
    elif is_exported:
        from conductor.tracing.trace_writer import TraceWriter

        writer = TraceWriter()
        writer.start()
    else:
        return None
    if is_exported:
        from conductor.telemetry.live import export_spans

        try:
            export_spans(writer)
        except ValueError as exc:
            raise click.UsageError(f"--otel: {exc}") from None
    return writer


def _require_otel() -> None:
    """Raise `click.UsageError` if the packages of the extra `otel` are not installed."""
    from importlib.util import find_spec

    try:
        is_found = all(
            map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
        )
    except ModuleNotFoundError:
        is_found = False
    if not is_found:
        raise click.UsageError(
            "--otel needs the OpenTelemetry SDK: pip install 'acp-conductor[otel]'"
        )


def _open_file(options: dict[str, Any]) -> TraceWriter:
    from pathlib import Path

    from conductor.tracing.trace_file import TraceFile
    from conductor.transport.inherited_stdio import open_missing_stdio

    open_missing_stdio()  # else the file could become stdin or stdout
    name, is_viewed = options.get("trace_file"), options.get("is_viewed", False)
    payloads = options["trace_payloads"]
    try:
        if name is not None and not is_viewed:
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
