"""Programs that sessions of other editors or projects would miss."""

from __future__ import annotations

import os

from conductor.chainfile import load
from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember
from conductor.cli.doctor.chain import missing_program_findings, other_project_findings


def test_a_missing_program_of_a_component_that_is_left_out_here_is_found(chain_file, tmp_path):
    path = chain_file(
        "proxies:\n  - {run: [no-such-a], when: {client: zed}}\n  - {run: [no-such-b]}\n"
        "agent: {use: test-agent}\n"
    )

    left_out, started = missing_program_findings(load(path), str(tmp_path))

    assert (left_out.severity, started.severity) == ("warning", "error")
    assert "no-such-b; the chain does not start" in started.message
    assert left_out.message.startswith(
        f"{path}:3:12: no-such-a: command not found: no-such-a; left"
    )


def test_a_missing_program_of_another_trusted_project_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    file = tmp_path / "project" / ".acp-conductor.yaml"
    path = str(file)
    file.write_text("version: 1\nproxies: [{run: gone}]\n")
    remember(TrustedFile(path, read_project_file(path, os.environ).files))

    [finding] = other_project_findings(str(tmp_path))

    assert "gone: command not found: gone; sessions of that project fail" in finding.message
    assert list(other_project_findings(str(tmp_path / "project"))) == []
