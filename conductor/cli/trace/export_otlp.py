"""`acp-conductor trace export FILE --otlp`: spans, to a file or to a collector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from conductor.telemetry.span import Span
    from conductor.tracing.records import Record

__all__ = ["export", "send"]

_BLOCK: Final = 1000
"""Records that are taken together."""
_SEND_TIMEOUT: Final = 60.0


def export(path: str, lines: Iterable[tuple[bytes, Record]], out: BinaryIO) -> None:
    """Write the spans as OTLP/JSON."""
    from conductor.telemetry.otlp_json import otlp_json

    out.write(otlp_json(_spans(lines)))


def send(url: str, lines: Iterable[tuple[bytes, Record]]) -> None:
    """Send the spans to a collector. Raises `click.ClickException` if it does not take them."""
    from conductor.cli.trace_options import require_otel

    require_otel(f"--otlp -o {url}")
    from conductor.telemetry.sdk import SpanExport

    if urlsplit(url).path in ("", "/"):
        url = url.rstrip("/") + "/v1/traces"
    export = SpanExport(url)
    for span in _spans(lines):
        export.add(span)
    export.close(_SEND_TIMEOUT)
    if export.errors.reported is not None:
        raise click.ClickException(f"{url} did not accept the spans: {export.errors.reported}")


def _spans(lines: Iterable[tuple[bytes, Record]]) -> Iterator[Span]:
    from conductor.telemetry.live import captures_content
    from conductor.telemetry.span_builder import SpanBuilder

    builder = SpanBuilder(captures_content())
    block: list[Record] = []
    last = 0.0
    for _, record in lines:
        if not record.time:  # of another conductor: times since its start
            record.time = record.ts
        block.append(record)
        last = record.time
        if len(block) == _BLOCK:
            yield from builder.add(block)
            block.clear()
    yield from builder.add(block)
    yield from builder.end(last)
