"""Where chain files of projects and of the user are found."""

from __future__ import annotations

import pytest

from conductor.places import (
    find_project_file,
    name_of_chain,
    named_chain,
    named_chains,
    stamp,
    user_chain_file,
)


def test_the_nearest_file_above_the_session_is_found(project):
    outer = project(name="project")
    inner = outer.parent / "a" / "b"
    inner.mkdir(parents=True)

    assert find_project_file(str(inner)) == str(outer)

    nearest = outer.parent / "a" / outer.name
    nearest.write_text("version: 1\n")
    assert find_project_file(str(inner)) == str(nearest)


def test_the_search_ends_before_the_home_directory(home):
    (home / ".acp-conductor.yaml").write_text("version: 1\n")
    directory = home / "project"
    directory.mkdir()

    assert find_project_file(str(directory)) is None
    assert find_project_file(str(home)) is None


def test_a_link_to_a_directory_is_resolved_first(project, home):
    path = project(name="real")
    (home / "link").symlink_to(path.parent)

    assert find_project_file(str(home / "link")) == str(path)


@pytest.mark.parametrize("cwd", ["project", "/no/such/directory", "/"])
def test_other_directories_have_none(project, home, monkeypatch, cwd):
    project()
    monkeypatch.chdir(home)

    assert find_project_file(cwd) is None


def test_the_file_of_the_user_is_in_the_configuration_directory(home):
    assert user_chain_file() is None

    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: 1\n")
    assert user_chain_file() == str(path)


def test_a_chain_of_the_user_has_a_name(home, monkeypatch):
    path = home / "config" / "acp-conductor" / "chains" / "review.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("version: 1\n")
    monkeypatch.chdir(home)

    assert named_chains() == ["review"]
    assert named_chain("review") == str(path)
    (home / "link").symlink_to(path.parent)
    assert name_of_chain(str(home / "link" / "review.yaml")) == "review"
    for path in ("./review", "sub/review", "review.yaml", "."):
        assert named_chain(path) == path


def test_a_stamp_differs_after_a_change(tmp_path):
    path = tmp_path / "chain.yaml"
    before = stamp([str(path)])
    path.write_text("version: 1\n")
    written = stamp([str(path)])

    assert len({before, written}) == 2
    assert stamp([str(path)]) == written
