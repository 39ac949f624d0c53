"""What `doctor` says of locked versions."""

from __future__ import annotations

import json

from conductor.chainfile import load
from conductor.cli.doctor.chain import version_findings


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
    assert "acp-conductor lock" in (found[0].help or "")

    path.write_text("version: 1\nregistry: ./registry.json\nagent: another\n")
    assert [each.severity for each in version_findings(load(str(path)))] == ["error"]


def test_a_chain_without_names_of_the_registry_has_no_versions(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("version: 1\nagent: {run: x}\n")

    assert list(version_findings(load(str(path)))) == []
