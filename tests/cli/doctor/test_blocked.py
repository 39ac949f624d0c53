"""A plugin that blocks the event loop is reported although the trial cannot end."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import trio

from conductor.chainfile import load
from conductor.cli.doctor import starts as blocked
from conductor.cli.doctor.starts import gather_starts, reported_if_blocked
from conductor.cli.trial import Trial

PLUGIN = """
import sys
sys.modules["released"].event.wait(20)  # here

from conductor.proxy import Proxy

class Slow(Proxy):
    pass
"""


class Report:
    """Collects the finding, and lets the plugin go on; ends its thread."""

    def __init__(self):
        self.findings = []
        self.event = threading.Event()
        self.thread = None

    def __call__(self, finding):
        self.findings.append(finding)
        self.thread = threading.current_thread()
        self.event.set()
        sys.exit()


@pytest.fixture
def report(monkeypatch):
    report = Report()
    monkeypatch.setattr(blocked, "_PATIENCE", 2.0)  # more than an import on a busy machine
    monkeypatch.setitem(sys.modules, "released", SimpleNamespace(event=report.event))
    return report


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_plugin_that_blocks_its_import_is_reported_with_its_line(report, chain_file, tmp_path):
    (tmp_path / "slow.py").write_text(PLUGIN)
    path = chain_file(f"proxies: [{{use: '{tmp_path}/slow.py:Slow'}}]\n")

    trio.run(gather_starts, Trial(load(path), limit=0.1), report)
    report.thread.join()  # whose end in an exception is this test's

    [finding] = report.findings
    assert (finding.severity, finding.check) == ("error", "start")
    assert f"the event loop, and so the whole chain, is blocked at {tmp_path}/slow.py:3" in (
        finding.message
    )


async def test_a_loop_that_waits_is_not_reported(report):
    with reported_if_blocked(0.0, report):
        replies = [threading.Event() for _ in range(3)]
        token = trio.lowlevel.current_trio_token()
        for reply in replies:
            await trio.to_thread.run_sync(token.run_sync_soon, reply.set)
            await trio.to_thread.run_sync(reply.wait)

    assert report.findings == []


async def test_a_loop_that_is_blocked_before_and_not_after_the_limit_is_not_reported(report):
    with reported_if_blocked(20.0, report):
        threading.Event().wait(0.01)

    assert report.findings == []
