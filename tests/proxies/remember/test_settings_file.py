import json
import os
import stat

import pytest

from proxies.remember.settings_file import SettingsFile

MODE = ("mode", "", "code")


@pytest.fixture
def file(tmp_path):
    return SettingsFile(tmp_path / "made" / "a.json")


def test_the_last_value_of_each_setting_is_kept_by_session_and_for_new_ones(file):
    for session, setting in [("1", MODE), ("2", ("option", "a", True)), ("2", ("mode", "", "x"))]:
        file.add(session, setting)

    assert file.latest() == [("option", "a", True), ("mode", "", "x")]
    assert file.of_session("1") == [MODE]


def test_only_its_owner_can_read_it(file):
    file.add("s", MODE)

    modes = [stat.S_IMODE(os.stat(each).st_mode) for each in (file.path.parent, file.path)]
    assert [oct(each) for each in modes] == ["0o700", "0o600"]
    assert sorted(os.listdir(file.path.parent)) == ["a.json", "a.lock"]


def test_its_size_is_bounded(file):
    file.add("s", ("option", "a", "x" * 1001))
    assert not file.path.exists()
    for number in range(202):
        file.add(f"s{number}", ("option", str(number), True))

    content = json.loads(file.path.read_text())
    assert (len(content["latest"]), len(content["sessions"])) == (100, 200)
    assert file.of_session("s1") == []
    assert file.of_session("s201") == [("option", "201", True)]


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\0"])
def test_a_damaged_file_is_an_error_and_is_replaced_by_the_next_setting(file, content):
    file.path.parent.mkdir()
    file.path.write_text(content)
    with pytest.raises(ValueError, match="is not valid JSON"):
        file.latest()

    file.add("s", MODE)

    assert file.latest() == [MODE]


def test_a_file_that_another_user_has_put_there_sets_nothing(file, monkeypatch):
    """In a directory in which every user can write; a mode may be one that asks nothing."""
    file.add("s", MODE)
    if os.geteuid() == 0:  # what root has written is read
        os.chown(file.path, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(PermissionError, match="belongs to another user"):
        file.latest()
    with pytest.raises(PermissionError, match="belongs to another user"):
        file.add("s", MODE)
