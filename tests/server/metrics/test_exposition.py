"""Metrics of a real server, and the dashboard that shows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from math import isnan
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from support.external_programs import free_port, program
from support.peers.process import ROOT
from support.remote_agents import reach

from conductor.errors import RequestError

pytestmark = pytest.mark.slow

PATIENCE = 30  # seconds; only a hanging program takes that long
CHAIN = "version: 1\nproxies:\n  - use: usage\nagent:\n  use: test-agent\n"
DASHBOARD = ROOT / "docs" / "grafana" / "acp-conductor.json"
CONDUCTOR = [sys.executable, "-m", "conductor"]


class Server:
    """A `serve` with metrics."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "chain.yaml").write_text(CHAIN)
        options = ["--listen", "127.0.0.1:0", "--metrics", "0"]
        self.process = subprocess.Popen(
            [*CONDUCTOR, "serve", "chain.yaml", *options],
            cwd=directory,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.metrics = self._announced("metrics at ")
        self.url = self._announced("listening on ")

    def _announced(self, text: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return line.partition(text)[2].strip()
        raise AssertionError("the server ended")

    def text(self) -> str:
        with urllib.request.urlopen(self.metrics, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def values(self) -> dict[str, float]:
        """The samples, as Prometheus writes them."""
        found = {}
        for family in text_string_to_metric_families(self.text()):
            for each in family.samples:
                labels = ",".join(f"{name}={value}" for name, value in sorted(each.labels.items()))
                found[f"{each.name}{{{labels}}}" if labels else each.name] = each.value
        return found

    async def prompt(self, *texts: str) -> None:
        """Send prompts; a client of each allows what it is asked."""
        for text in texts:
            async with reach(connect=self.url.replace("http:", "ws:")) as client:
                await client.initialize()
                session = await client.new_session(str(self.directory))
                with suppress(RequestError):
                    await client.prompt(session, text)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("metrics"))
    trio.run(server.prompt, "ask the secret question", "fail -32603 secret")
    yield server
    server.process.terminate()
    server.process.communicate()


@pytest.mark.fast
def test_a_turn_is_counted_on_every_hop(server):
    values = server.values()

    assert values["acp_conductor_prompts_total{outcome=end_turn}"] == 1
    assert values["acp_conductor_prompts_total{outcome=error}"] == 1
    key = "component=test-agent,kind=request,method=session/prompt,toward=agent"
    assert values[f"acp_conductor_messages_total{{{key}}}"] == 2
    assert values[f"acp_conductor_message_bytes_total{{{key}}}"] > 20
    for component in ("usage", "mcp-bridge", "test-agent"):
        labels = f"component={component},method=session/prompt"
        assert values[f"acp_conductor_request_duration_seconds_count{{{labels}}}"] == 2
    failed = "code=-32603,component=test-agent,method=session/prompt"
    assert values[f"acp_conductor_errors_total{{{failed}}}"] == 1
    assert values["acp_conductor_turns_running"] == 0


@pytest.mark.fast
def test_counters_of_failures_and_outcomes_begin_with_zero(server):
    """Else Prometheus does not see the first failure."""
    values = server.values()

    for name in ("component_failures", "component_restarts", "start_failures"):
        for component in ("usage", "test-agent"):
            assert values[f"acp_conductor_{name}_total{{component={component}}}"] == 0
    for outcome in ("cancelled", "max_tokens", "refusal"):
        assert values[f"acp_conductor_prompts_total{{outcome={outcome}}}"] == 0


def test_no_metric_names_a_session_a_client_or_a_text(server):
    text = server.text()

    for each in ("session-1", "secret", "127.0.0.1", str(server.directory)):
        assert each not in text


def test_healthz_is_answered_beside_the_metrics(server):
    with urllib.request.urlopen(server.metrics.replace("metrics", "healthz")) as answer:
        assert (answer.status, answer.read()) == (200, b"ok\n")


def test_openmetrics_is_written_for_those_who_ask(server):
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(server.metrics, headers=accept)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.read().endswith(b"# EOF\n")


def expressions():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_queries_of_the_dashboard_name_metrics_and_labels_of_the_server(server):
    found = {}
    for family in text_string_to_metric_families(server.text()):
        names = {each.name for each in family.samples}
        if not names:  # nothing counted yet
            suffix = "_total" if family.type == "counter" else ""
            names = {family.name + suffix}
        for name in names:
            found[name] = {label for each in family.samples for label in each.labels}
    grouped = {label for labels in found.values() for label in labels} | {"job", "instance"}

    assert len(expressions()) >= 12
    for each in expressions():
        names = set(re.findall(r"\b(?:acp_conductor|process)_\w+", each))
        assert names, each
        assert names <= found.keys(), each
        for labels in re.findall(r"\bby \(([^)]*)\)", each):
            assert set(re.split(r",\s*", labels)) <= grouped, each


@pytest.mark.external
def test_promtool_accepts_metrics_and_queries(server, tmp_path):
    promtool = program("promtool")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=server.text(), text=True, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    rules = [
        {"record": f"acp:rule{number}", "expr": each.replace("$__rate_interval", "5m")}
        for number, each in enumerate(expressions())
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", file], text=True, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture
def prometheus(server, tmp_path):
    """A Prometheus that scrapes the server every 0.2 s; asked for the values of an expression."""
    target = server.metrics.split("/")[2]
    file = tmp_path / "prometheus.json"  # JSON is YAML
    jobs = [{"job_name": "acp-conductor", "static_configs": [{"targets": [target]}]}]
    settings = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
    file.write_text(json.dumps({"global": settings, "scrape_configs": jobs}))
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), f"--config.file={file}", f"--web.listen-address={address}"]
    command.append(f"--storage.tsdb.path={tmp_path / 'data'}")

    def ask(expression: str) -> list[float]:
        """Its values now, as soon as there are any."""
        end = time.monotonic() + PATIENCE
        while not (found := values(expression)):
            assert time.monotonic() < end, expression
            time.sleep(0.1)
        return found

    def values(expression: str) -> list[float]:
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}") as answer:
                found = json.load(answer)["data"]["result"]
        except urllib.error.URLError:  # not up yet
            return []
        return [value for each in found if not isnan(value := float(each["value"][1]))]

    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        yield ask
        process.terminate()


@pytest.mark.external
def test_prometheus_has_values_for_every_query_of_the_dashboard(server, prometheus):
    prometheus("acp_conductor_build_info")
    trio.run(server.prompt, "fail -32603 again", "say hello")

    for each in expressions():
        assert min(prometheus(each.replace("$__rate_interval", "30s"))) >= 0


@pytest.mark.parametrize("address", ["here", "unix:/x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_a_usage_error(command_server, tmp_path, address):
    (tmp_path / "chain.yaml").write_text(CHAIN)
    result = command_server.run(
        ["serve", "chain.yaml", "--metrics", address],
        input="",
        cwd=tmp_path,
        env=os.environ,
        timeout=PATIENCE,
    )

    assert result.returncode == 2
    assert "--metrics: " in result.stderr
