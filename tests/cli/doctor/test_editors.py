"""What `doctor` says of entries in editors."""

from __future__ import annotations

import pytest

from conductor.cli.doctor.editors import EditorFile, editor_findings, gather_editors
from conductor.cli.install.formats import Edit
from conductor.cli.install.records import InstalledEntry, InstalledFile, Records


@pytest.mark.parametrize(
    ("state", "severity", "words"),
    [
        ("as written", "ok", "zed: review in /settings.json"),
        ("changed", "ok", "zed: review in /settings.json; changed since"),
        ("missing", "warning", "/settings.json of zed is gone, with review"),
    ],
)
def test_the_state_of_a_file(state, severity, words):
    [finding] = editor_findings([EditorFile("zed", "/settings.json", ("review",), state)])

    assert (finding.severity, finding.message) == (severity, words)


@pytest.mark.slow
def test_records_are_read_and_compared(run, chain_file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = tmp_path / "settings.json"
    chain = chain_file("agent: {use: test-agent}\n")
    done = run("install", "zed", "--chain", chain, "--file", settings, "--write")
    assert done.returncode == 0, done.stderr

    [file] = gather_editors()
    assert (file.editor, file.state) == ("zed", "as written")
    settings.write_text(settings.read_text() + "\n")
    assert gather_editors()[0].state == "changed"
    settings.unlink()
    assert gather_editors()[0].state == "missing"


def test_a_chain_file_or_a_program_that_is_gone_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, chain = tmp_path / "acp-conductor", tmp_path / "review.yaml"
    program.touch()
    path = str(tmp_path / "settings.json")
    whole = {"command": str(program), "args": ["run", str(chain)]}
    for value in (whole, {"command": f"{program} run {chain}"}):
        edit = Edit(("agent_servers", "review"), value)
        entries = {"review": InstalledEntry("review", (edit,))}
        file = InstalledFile("zed", path, path, None, "", entries=entries)
        Records(tmp_path / "state" / "acp-conductor" / "editors", {path: file}).save()

        assert gather_editors()[0].gone == (str(chain),)
    [finding] = editor_findings([EditorFile("zed", path, ("review",), "changed", (str(chain),))])
    assert finding.severity == "error"
    assert f"starts what is not there: {chain}" in finding.message


def test_broken_records_are_an_error():
    [finding] = editor_findings("editors.json cannot be read")

    assert finding.severity == "error"
