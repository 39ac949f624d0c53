"""What `doctor` says of entries in editors."""

from __future__ import annotations

import pytest

from conductor.cli.doctor.editors import EditorFile, editor_findings, gather_editors


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


def test_broken_records_are_an_error():
    [finding] = editor_findings("editors.json cannot be read")

    assert finding.severity == "error"
