"""Spans in the OpenTelemetry collector, if the program `otelcol` is there."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from support.external_programs import free_port
from support.peers.process import ROOT

pytestmark = pytest.mark.external

CONFIG = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  debug:
    verbosity: detailed
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [debug]
"""


class Collector:
    """A running collector; its output names each span that came."""

    def __init__(self, process, url):
        self.process, self.url, self.output = process, url, ""

    def wait_for(self, text):
        """Read its output until a line has the text."""
        for line in self.process.stderr:
            self.output += line
            if text in line:
                return
        pytest.fail(f"the collector ended without {text!r}:\n{self.output}")


@pytest.fixture
def collector(tmp_path):
    path = shutil.which("otelcol")
    if path is None:
        pytest.skip("needs the program otelcol (no distribution packages it)")
    port = free_port()
    (tmp_path / "otelcol.yaml").write_text(CONFIG.format(port=port))
    command = [path, "--config", str(tmp_path / "otelcol.yaml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        collector = Collector(process, f"http://127.0.0.1:{port}")
        try:
            collector.wait_for("Everything is ready")
            yield collector
        finally:
            process.terminate()


def test_the_collector_takes_spans_of_a_running_chain(run, collector):
    run(
        *("prompt", "--otel", ROOT / "chains" / "hello.yaml", "say hello"),
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
    )

    collector.wait_for("Name           : invoke_agent test-agent")
    collector.wait_for("gen_ai.operation.name: Str(invoke_agent)")
