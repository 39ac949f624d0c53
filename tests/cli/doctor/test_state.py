"""What `doctor` says of directories for state that cannot be written."""

from __future__ import annotations

import json

from conductor.cli.doctor.files import StateDirectory, gather_state, state_findings, state_uses


def test_a_directory_that_is_there_or_can_be_made_is_good(tmp_path):
    paths = [tmp_path, tmp_path / "not" / "yet"]
    directories = [StateDirectory(str(path), "u", "V") for path in paths]

    found = gather_state(directories)

    assert [each.error for each in found] == [None, None]
    assert [each.severity for each in state_findings(found)] == ["ok"]
    assert list(tmp_path.iterdir()) == []


def test_one_below_a_file_says_what_is_lost_and_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    directory = StateDirectory(str(tmp_path / "file" / "flight"), "no records", "XDG_STATE_HOME")

    [finding] = state_findings(gather_state([directory]))

    assert finding.severity == "warning"
    assert finding.message.startswith(f"no file can be made in {directory.path} (")
    assert finding.message.endswith("): no records")
    assert finding.help is not None
    assert "XDG_STATE_HOME" in finding.help


def test_state_records_agents_and_sockets_are_looked_at():
    ends = {each.path.split("acp-conductor")[1] for each in state_uses()}

    assert ends == {"", "/flight", "/editors", "/agents"}


def test_doctor_reports_it(run, tmp_path):
    (tmp_path / "file").write_text("")

    done = run("doctor", "--json", env={"XDG_DATA_HOME": str(tmp_path / "file")})

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [each["severity"] for each in found if each["check"] == "state"] == ["warning"]
