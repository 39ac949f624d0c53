"""Export the spans of chains while they run (`--otel`).

    recorder ─▶ thread of the trace writer ─▶ records ─▶ spans ─▶ queue of the SDK ─▶ collector

The message path records, as for a trace file, and passes the trace context on. Masking is that of
trace files.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import threading
import time
from functools import partial
from typing import Any, Final

import attrs
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.util.re import parse_env_headers
from requests.adapters import HTTPAdapter

from conductor.log import get_logger
from conductor.secrets.masking import register_secrets
from conductor.telemetry.propagation import PropagatingRecorder
from conductor.telemetry.span_builder import SpanBuilder
from conductor.tracing.reader import read_records
from conductor.tracing.trace_writer import TraceWriter

__all__ = ["LiveExport", "captures_content", "export_spans"]

_CLOSE_TIMEOUT: Final = 2.0
"""Maximum seconds to wait for the collector when the conductor ends."""
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SURROGATES: Final = re.compile(rb"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
"""Escaped surrogates; the group has pairs, which are characters, and escaped backslashes."""

log: Final = get_logger(component="otel")
_exporter_log: Final = logging.getLogger("opentelemetry.exporter")


def export_spans(writer: TraceWriter) -> None:
    """Export the spans of all chains that get a recorder of this writer.

    Raises `ValueError` for unsupported values of environment variables.
    """
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
        for value in parse_env_headers(os.environ.get(name, ""), liberal=True).values():
            register_secrets([value, value.rpartition(" ")[2]])  # the token behind its scheme
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer(__name__)
    writer.recorder_type = partial(PropagatingRecorder, tracer=tracer)
    live = LiveExport()
    writer.listeners.append(live.heard)
    writer.closers.append(live.close)


def captures_content() -> bool:
    """Whether the environment asks for prompts, answers and tool arguments in spans."""
    value = os.environ.get(_CAPTURE, "").lower()
    return value in ("true", "1", "span_only", "span_and_event")


@attrs.define(eq=False)
class LiveExport:
    """Makes spans of recorded lines; the SDK sends them in batches from a thread of its own."""

    _builder: SpanBuilder | None = None
    _failed: bool = False

    def heard(self, lines: list[bytes]) -> None:
        """Take the records of a block of lines; called in the thread of the writer."""
        if self._failed:
            return
        try:
            if self._builder is None:  # here: the thread of the SDK inherits the signal mask
                processor = BatchSpanProcessor(_exporter())
                self._builder = SpanBuilder(processor, captures_content())
            self._builder.add(read_records(map(_without_lone_surrogates, lines)))
        except Exception as exc:  # spans must not end the trace file, which has the same thread
            self._failed = True
            log.error("spans are not exported any more", error=f"{type(exc).__name__}: {exc}")

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """End and send the spans that are left, for up to `timeout` seconds."""
        if self._builder is None:
            return
        if not self._failed:
            self._builder.end(time.time())
        thread = threading.Thread(
            target=self._builder.provider.shutdown, name="otel end", daemon=True
        )
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            _exporter_log.log(logging.WARNING, "spans that were not sent in time are lost")


def _without_lone_surrogates(line: bytes) -> bytes:
    """The line with `?` for each half of a surrogate pair, which UTF-8 cannot encode: agents cut
    texts in the middle of an emoji."""
    return _SURROGATES.sub(lambda found: found[1] or b"?", line)


def _exporter() -> SpanExporter:
    _exporter_log.addHandler(_FirstError(logging.WARNING))
    _exporter_log.propagate = False
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "console":
        return ConsoleSpanExporter(out=sys.stderr)
    if any(name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ):
        return OTLPSpanExporter()  # it brings a session
    session = requests.Session()
    session.max_redirects = 0  # another host would get the headers, and the spans
    for scheme in ("http://", "https://"):
        session.mount(scheme, _WithoutBody())
    return OTLPSpanExporter(session=session)


class _WithoutBody(HTTPAdapter):
    """Leaves out the body of each answer: requests reads it without limit, and the exporter needs
    the status only."""

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(*args, **kwargs)
        response.close()
        response.raw = io.BytesIO()
        return response


class _FirstError(logging.Handler):
    """Logs the first error of the exporter, which has one for each batch."""

    _has_logged = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._has_logged:
            return
        self._has_logged = True
        log.warning(
            "spans cannot be exported",
            error=record.getMessage(),
            help="is a collector running at OTEL_EXPORTER_OTLP_ENDPOINT (by default "
            "http://localhost:4318), and does it take OTLP over HTTP? Further errors are not "
            "logged.",
        )
