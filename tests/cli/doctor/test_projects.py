"""What `doctor` says of the chain files of the user and of a project."""

from __future__ import annotations

import os

import pytest

from conductor.chain.chooser import OtherFiles
from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember
from conductor.cli.doctor.chain import project_findings


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


def test_without_files_nothing_is_said(home):
    assert found(home) == []


def test_a_project_file_is_not_trusted_or_used(home):
    path = home / "project" / ".acp-conductor.yaml"
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
