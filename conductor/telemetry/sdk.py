"""Gives spans to the OpenTelemetry SDK. Exporter, resource and queue are configured by the SDK's
environment variables.

This is the only module that imports `opentelemetry`, which takes 0.3 s; the extra `otel` brings it.
"""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from requests.adapters import HTTPAdapter

from conductor import __version__
from conductor.log import get_logger
from conductor.telemetry.span import Span, encodable, nanoseconds

__all__ = ["SpanExport"]

_KINDS: Final = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
_SCOPE: Final = "acp-conductor"
_MAX_ANSWER: Final = 64 * 1024
"""Bytes."""

log: Final = get_logger(component="otel")


class _GivenIds(IdGenerator):
    """The ids of the span that is created next."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class SpanExport:
    """Gives finished spans to the SDK, which sends them in batches from a thread of its own.

    The first error of an export is logged. Nothing is raised.
    """

    def __init__(self) -> None:
        self._errors = _ErrorOnce(logging.WARNING)
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._errors)
        logger.propagate = False
        self._ids = _GivenIds()
        attributes = {"service.name": _SCOPE} if _names_no_service() else {}
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what is not sampled does not come here
            resource=Resource.create({**attributes, "service.version": __version__}),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(_exporter()))
        self._tracer = self._provider.get_tracer(_SCOPE, __version__)

    def add(self, span: Span) -> None:
        """Export a span, if it is sampled."""
        if not span.sampled:
            return
        span = encodable(span)
        self._ids.trace_id, self._ids.span_id = int(span.trace_id, 16), int(span.span_id, 16)
        context = None
        if span.parent_id is not None:
            parent = SpanContext(
                self._ids.trace_id,
                int(span.parent_id, 16),
                span.has_remote_parent,
                TraceFlags(TraceFlags.SAMPLED),
            )
            context = set_span_in_context(NonRecordingSpan(parent))
        made = self._tracer.start_span(
            span.name,
            context,
            _KINDS[span.kind],
            span.attributes,
            start_time=nanoseconds(span.start),
        )
        for event in span.events:
            made.add_event(event.name, event.attributes, nanoseconds(event.time))
        if span.error is not None:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(nanoseconds(span.end))

    def close(self, timeout: float) -> None:
        """Send the spans that wait, for up to `timeout` seconds; those that are left are lost."""
        thread = threading.Thread(target=self._provider.shutdown, name="otel end", daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            self._errors.report("spans that were not sent in time are lost")


class _ErrorOnce(logging.Handler):
    """Logs the first error of the SDK, which logs one for each batch."""

    _has_reported = False

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        cause = re.search(_CAUSE, text)
        self.report(text if cause is None else cause[1])

    def report(self, error: str) -> None:
        """Log an error, if it is the first."""
        if self._has_reported:
            return
        self._has_reported = True
        log.warning(
            "spans cannot be exported",
            error=error,
            help="is a collector running at OTEL_EXPORTER_OTLP_ENDPOINT (by default "
            "http://localhost:4318), and does it take OTLP over HTTP? Further errors are not "
            "logged.",
        )


_CAUSE: Final = r"""Caused by \w+\(["'](?:\w+\([^()]*\): )?(.+?)["']\)\)"""
"""Finds the cause in the text of a failed connection, which names several exception classes around
it."""


def _exporter() -> SpanExporter:
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "console":
        import sys

        return ConsoleSpanExporter(out=sys.stderr)
    if any(name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ):
        return OTLPSpanExporter()  # it brings a session
    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"
    session.max_redirects = 0  # it would get the headers, and the spans
    for scheme in ("http://", "https://"):
        session.mount(scheme, _ShortAnswers())
    return OTLPSpanExporter(session=session)


class _ShortAnswers(HTTPAdapter):
    """Leaves out bodies that are long, or of unknown length: requests reads them without limit."""

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(*args, **kwargs)
        length = response.headers.get("Content-Length", "")
        is_coded = response.headers.keys() & {"Transfer-Encoding", "Content-Encoding"}
        if is_coded or not length.isdecimal() or int(length) > _MAX_ANSWER:
            response.close()
            response.raw = io.BytesIO()
        return response


def _names_no_service() -> bool:
    resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return "OTEL_SERVICE_NAME" not in os.environ and "service.name=" not in resource
