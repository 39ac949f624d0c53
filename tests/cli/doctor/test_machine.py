"""What `doctor` says of this machine, of files and of editors."""

from __future__ import annotations

import os

import pytest

from conductor.chainfile import load
from conductor.cli.doctor.machine import (
    chain_files,
    editor_findings,
    file_findings,
    machine_findings,
    state_findings,
)
from conductor.cli.install.formats import Edit
from conductor.cli.install.installation import InstalledFile, Records


def told(findings):
    return [(each.severity, each.check, each.message) for each in findings]


def test_path_and_the_programs_in_it(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\n[ -e other ] || echo v99.0.1\n")
    node.chmod(0o755)
    (tmp_path / "other").touch()  # launchers read configuration of the working directory
    monkeypatch.chdir(tmp_path)

    found = told(machine_findings({"PATH": f"{tmp_path}:bin::/no/such"}, ["npx"]))

    assert found[1:] == [
        ("warning", "path", "acp-conductor is not in PATH"),
        ("warning", "path", f"every user of this machine can put programs into {tmp_path} of PATH"),
        ("warning", "path", "PATH has the relative directory bin"),
        ("warning", "path", "PATH has an empty entry, which is the working directory"),
        ("ok", "programs", f"node v99.0.1, {node}"),
        ("error", "programs", "npx is not in PATH; the chain needs it"),
        ("ok", "programs", "uvx is not in PATH; nothing here needs it"),
    ]


@pytest.mark.parametrize(
    ("environ", "leaked"),
    [
        ({"FLATPAK_ID": "dev.zed.Zed", "LD_LIBRARY_PATH": "/app/lib"}, {"LD_LIBRARY_PATH"}),
        ({"LD_PRELOAD": "/usr/lib/a.so /snap/code/1/b.so", "SNAP": "/snap/code/1"}, {"LD_PRELOAD"}),
        ({"PYTHONHOME": "/tmp/.mount_Editorx1/usr", "PYTHONPATH": "src"}, {"PYTHONHOME"}),
        ({"APPDIR": "/opt/x", "PYTHONPATH": "/srv:/opt/x/lib"}, {"PYTHONPATH"}),
        ({"LD_LIBRARY_PATH": "/app/lib:/usr/local/cuda/lib64"}, set()),  # a container of the user
        ({"FLATPAK_ID": "dev.zed.Zed", "LD_LIBRARY_PATH": ""}, set()),
    ],
)
def test_variables_of_the_package_of_the_editor_are_a_warning(environ, leaked):
    found = machine_findings({"PATH": "/no/such/directory", **environ}, ())

    warnings = [each for each in found if each.check == "environment"]
    assert {each.message.partition("=")[0] for each in warnings} == leaked
    assert all(f"env: {{{name}: null}}" in warnings[0].help for name in leaked)


@pytest.mark.parametrize(
    ("kind", "mode", "severity"),
    [
        ("chain file", 0o644, "ok"),
        ("chain file", 0o664, "warning"),
        ("chain file", 0o666, "error"),
        ("key", 0o600, "ok"),
        ("key", 0o644, "error"),
        ("state directory", 0o757, "error"),
    ],
)
def test_others_must_not_decide_what_runs(tmp_path, kind, mode, severity):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)

    [finding] = file_findings({str(path): kind})

    assert finding.severity == severity
    assert (finding.help is None) == (severity == "ok")


def test_a_file_of_another_user_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    path = tmp_path / "file"
    path.touch()
    if path.stat().st_uid == 0:
        os.chown(path, 4712, -1)

    [finding] = file_findings({str(path): "chain file"})

    assert (finding.severity, "belongs to another user" in finding.message) == ("error", True)


def test_the_files_of_a_chain_are_looked_at(tmp_path):
    (tmp_path / "inner.yaml").write_text("version: 1\nproxies: [{use: './p.py:P'}]\n")
    outer = tmp_path / "outer.yaml"
    outer.write_text("version: 1\nproxies: [{chain: inner.yaml}]\nagent: {run: x}\n")

    found = chain_files(load(str(outer)))

    assert found.keys() == {str(tmp_path / name) for name in ("outer.yaml", "inner.yaml", "p.py")}


def test_a_directory_for_state_that_cannot_be_made_says_what_is_lost(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert told(state_findings()) == [
        ("ok", "state", "the directories for state can be written"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    [finding] = state_findings()

    assert finding.severity == "warning"
    assert finding.message.startswith(
        f"no file can be made in {tmp_path}/file/acp-conductor/agents"
    )
    assert finding.message.endswith("): no agent is installed")
    assert "XDG_DATA_HOME" in finding.help


@pytest.mark.parametrize("is_line", [True, False])
def test_entries_of_editors_and_what_they_start(tmp_path, monkeypatch, is_line):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings, program, chain = (tmp_path / name for name in ("s.json", "acp-conductor", "r.yaml"))
    for each in (settings, program, chain):
        each.touch()
    value = {"command": str(program), "args": ["run", str(chain)]}
    edit = Edit(("agent_servers", "r"), {"command": f"{program} run {chain}"} if is_line else value)
    file = InstalledFile("zed", str(settings), str(settings), True, {"r": (edit,)})
    Records(tmp_path / "state" / "acp-conductor" / "editors", {file.path: file}).save()

    assert told(editor_findings()) == [("ok", "editors", f"zed: r in {settings}")]
    chain.unlink()
    gone = f"zed: r in {settings} starts what is not there: {chain}"
    assert told(editor_findings()) == [("error", "editors", gone)]
    settings.unlink()
    assert told(editor_findings()) == [("warning", "editors", f"{settings} of zed is gone, with r")]
