"""Export the spans of chains while they run (`--otel`).

    recorder ─▶ thread of the trace writer ─▶ records ─▶ spans ─▶ queue of the SDK ─▶ collector

The message path records, as for a trace file, and passes the trace context on. Masking is that of
trace files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs

from conductor.log import get_logger
from conductor.secrets.registered import register_secrets
from conductor.telemetry.propagation import PropagatingRecorder
from conductor.telemetry.sampler import sampler_of
from conductor.telemetry.span_builder import SpanBuilder
from conductor.tracing.reader import read_records
from conductor.tracing.trace_writer import TraceWriter

if TYPE_CHECKING:
    from conductor.telemetry.sdk import SpanExport

__all__ = ["captures_content", "export_spans"]

_CLOSE_TIMEOUT: Final = 2.0
"""Maximum seconds to wait for the collector when the conductor ends."""
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

log: Final = get_logger(component="otel")


def export_spans(writer: TraceWriter) -> None:
    """Export the spans of all chains that get a recorder of this writer.

    Raises `ValueError` for unsupported values of environment variables.
    """
    sampler = sampler_of(os.environ)
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: only http/protobuf is supported")
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    if exporter not in ("otlp", "console", "none"):
        raise ValueError(f"OTEL_TRACES_EXPORTER={exporter}: expected otlp, console or none")
    if exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        register_secrets(_header_values(os.environ.get(name, "")))
    live = _LiveExport(SpanBuilder(captures_content(), sampler))
    writer.recorder_type = partial(PropagatingRecorder, sampler=sampler)
    writer.listeners.append(live.heard)
    writer.closers.append(live.close)


def captures_content() -> bool:
    """Whether the environment asks for prompts, answers and tool arguments in spans."""
    value = os.environ.get(_CAPTURE, "").lower()
    return value in ("true", "1", "span_only", "span_and_event")


def _header_values(headers: str) -> Iterator[str]:
    """The values of `name=value,…`, and a token behind its scheme."""
    for pair in headers.split(","):
        value = unquote(pair.partition("=")[2]).strip()
        yield from (value, value.rpartition(" ")[2])


@attrs.define(eq=False)
class _LiveExport:
    builder: SpanBuilder
    _export: SpanExport | None = None
    _failed: bool = False

    def heard(self, lines: list[bytes]) -> None:
        """Take the records of a block of lines; called in the thread of the writer."""
        if self._failed:
            return
        try:
            for span in self.builder.add(read_records(lines)):
                self._sdk().add(span)
        except Exception as exc:  # spans must not end the trace file, which has the same thread
            self._failed = True
            log.error("spans are not exported any more", error=f"{type(exc).__name__}: {exc}")

    def close(self) -> None:
        if not self._failed:
            for span in self.builder.end(time.time()):
                self._sdk().add(span)
        if self._export is not None:
            self._export.close(_CLOSE_TIMEOUT)

    def _sdk(self) -> SpanExport:
        """Imported for the first span, in the thread of the writer."""
        if self._export is None:
            from conductor.telemetry.sdk import SpanExport

            self._export = SpanExport()
        return self._export
