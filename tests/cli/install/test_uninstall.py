"""`uninstall` of what was not installed."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zed"], "`install --write` has written nothing for Zed"),
        (["zed", "--name", "x"], "`install --write` has written no agent 'x' for Zed"),
        (["zed", "--file", "x.json"], "has written nothing for Zed to x.json"),
        (["toad"], "`install --write` has written nothing for Toad"),
    ],
)
def test_there_is_nothing_to_uninstall(call, words, message):
    assert message in call("uninstall", *words, code=1).stderr


def test_only_the_file_that_is_named_is_changed(call, home):
    for name in ("a.json", "b.json"):
        call("install", "zed", "--chain", "review.yaml", "--file", name, "--write")

    call("uninstall", "zed", "--file", "a.json")

    assert not (home / "a.json").exists()
    assert '"review"' in (home / "b.json").read_text()


def test_directories_that_install_has_made_are_removed_while_they_are_empty(call, home):
    (home / "there").mkdir()
    call("install", "zed", "--chain", "review.yaml", "--file", "there/made/too/a.json", "--write")
    before = {"there", "review.yaml"}
    assert {path.name for path in home.iterdir()} > before

    call("uninstall", "zed")

    assert [path.name for path in (home / "there").iterdir()] == []
    assert [path for path in home.rglob("*") if "editors" in path.name] == []


def test_a_directory_that_others_use_stays(call, home):
    call("install", "zed", "--chain", "review.yaml", "--file", "made/a.json", "--write")
    (home / "made" / "b.json").touch()

    call("uninstall", "zed")

    assert [path.name for path in (home / "made").iterdir()] == ["b.json"]


def test_the_last_file_in_directories_that_install_has_made_removes_them(call, home):
    (home / "there").mkdir()
    for editor in ("zed", "jetbrains"):
        file = f"there/made/{editor}.json"
        call("install", editor, "--chain", "review.yaml", "--file", file, "--write")

    call("uninstall", "zed")
    call("uninstall", "jetbrains")

    assert [path.name for path in (home / "there").iterdir()] == []
