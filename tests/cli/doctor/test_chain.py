"""What `doctor` says of a chain's files, and of those of the user and of a project."""

from __future__ import annotations

import json
import os

import pytest

from conductor.chain.chooser import OtherFiles
from conductor.chainfile import load
from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember
from conductor.cli.doctor.chain import program_findings, project_findings, version_findings


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name, directory in (("HOME", ""), ("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "s")):
        monkeypatch.setenv(name, str(tmp_path / directory))
    (tmp_path / "config" / "acp-conductor").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    return tmp_path


def found(home):
    findings = project_findings(str(home / "project"), OtherFiles())
    return [(each.severity, each.message.partition("\n")[0], each.help) for each in findings]


def test_a_project_file_is_not_trusted_or_used(home):
    path = home / "project" / ".acp-conductor.yaml"
    assert found(home) == []

    path.write_text("version: 1\nproxies: [{use: usage}]\n")
    help = f"to use it in sessions of this project: acp-conductor trust {path}"
    assert found(home) == [("warning", f"{path} is not trusted yet", help)]

    remember(TrustedFile(str(path), read_project_file(str(path), os.environ).files))
    assert found(home) == [("ok", f"{path} is trusted, and adds 1 proxy to its sessions", None)]


def test_the_file_of_the_user_is_used_or_has_mistakes(home):
    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.write_text("version: 1\nproxies: [{use: usage}, {run: x}]\n")
    assert found(home) == [("ok", f"{path} adds 2 proxies to every chain", None)]

    path.write_text("version: 1\nproxies: [{rn: x}]\n")
    ((severity, message, help),) = found(home)
    assert (severity, "--no-user" in help) == ("error", True)
    assert message == f"{path}:2:12: error: unknown key `rn`"


def test_a_missing_program_also_of_a_component_that_is_left_out_here(chain_file):
    path = chain_file(
        "proxies: [{run: [no-such-a], when: {client: zed}}]\nagent: {use: test-agent}\n"
    )

    [finding] = program_findings(load(path))

    assert finding.severity == "warning"
    assert finding.message == f"{path}:2:18: no-such-a: command not found: no-such-a"


def test_an_agent_that_is_not_locked_is_a_warning_and_an_unknown_one_an_error(tmp_path):
    package = {"package": "an-agent@1.2.3"}
    entry = {"id": "an-agent", "name": "A", "version": "1.2.3", "distribution": {"npx": package}}
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps({"version": "1.0.0", "agents": [entry]}))
    path = tmp_path / "c.yaml"
    path.write_text("version: 1\nregistry: ./registry.json\nagent: an-agent\n")

    found = list(version_findings(load(str(path))))
    assert [each.severity for each in found] == ["warning", "ok"]
    assert "1.2.3 is not locked" in found[0].message

    path.write_text("version: 1\nregistry: ./registry.json\nagent: another\n")
    assert [each.severity for each in version_findings(load(str(path)))] == ["error"]
