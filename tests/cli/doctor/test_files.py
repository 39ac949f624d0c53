"""What `doctor` says of the permissions of files."""

from __future__ import annotations

import pytest

from conductor.chainfile import load
from conductor.cli.doctor.files import FileFacts, chain_files, file_findings, gather_files


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        (FileFacts("c", "chain file", 0o644), "ok"),
        (FileFacts("c", "chain file", 0o664), "warning"),
        (FileFacts("c", "chain file", 0o666), "error"),
        (FileFacts("c", "chain file", 0o600, is_own=False), "error"),
        (FileFacts("k", "key", 0o600), "ok"),
        (FileFacts("k", "key", 0o644), "error"),
        (FileFacts("d", "state directory", 0o700), "ok"),
        (FileFacts("d", "state directory", 0o757), "error"),
    ],
)
def test_others_must_not_decide_what_runs(facts, severity):
    [finding] = file_findings([facts])

    assert finding.severity == severity
    assert (finding.help is None) == (severity == "ok")


def test_the_files_of_a_chain_are_looked_at(tmp_path):
    (tmp_path / "inner.yaml").write_text("version: 1\nproxies: [{use: './p.py:P'}]\n")
    outer = tmp_path / "outer.yaml"
    outer.write_text("version: 1\nproxies: [{chain: inner.yaml}]\nagent: {run: x}\n")
    (tmp_path / "p.py").write_text("")
    (tmp_path / "p.py").chmod(0o606)

    facts = gather_files(chain_files(load(str(outer))))

    modes = {each.path.removeprefix(f"{tmp_path}/"): each.mode for each in facts}
    assert modes.keys() == {"outer.yaml", "inner.yaml", "p.py"}
    assert modes["p.py"] == 0o606
