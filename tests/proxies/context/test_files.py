from __future__ import annotations

import os

import pytest

from proxies.context import files
from proxies.context.files import FoundFile, found_files, missing, read_files, search_path


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory in the home directory, with directories below it: `a`, `a/b`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    (project / "a" / "b").mkdir(parents=True)
    return project


def names(patterns, directory):
    return [file.name for file in found_files(patterns, str(directory))]


@pytest.mark.parametrize("root", [".git", ".acp-conductor.yaml"])
def test_a_file_of_the_project_is_found_from_its_subdirectories(project, root):
    (project / root).touch()
    (project / "AGENTS.md").write_text("Use tabs.")

    found = found_files(["AGENTS.md"], str(project / "a" / "b"))

    assert found == [FoundFile("../../AGENTS.md", str(project / "AGENTS.md"))]
    assert read_files(["AGENTS.md"], str(project / "a"), 3) == [("../AGENTS.md", b"Use ")]
    assert names(["AGENTS.md"], project) == ["AGENTS.md"]


def test_the_nearest_directory_with_a_match_counts_for_each_pattern(project):
    (project / ".git").mkdir()
    (project / "rules").mkdir()
    for name in ("AGENTS.md", "a/AGENTS.md", "rules/1.md", "rules/2.md"):
        (project / name).touch()

    found = names(["*.md", "rules/*.md", "AGENTS.md"], project / "a" / "b")

    assert found == ["../AGENTS.md", "../../rules/1.md", "../../rules/2.md"]


def test_without_a_root_only_the_directory_of_the_session_is_searched(project):
    (project / "AGENTS.md").touch()

    assert search_path(str(project / "a")) == [str(project / "a")]
    why = f"matches no file in {project}/a, or above it in the project"
    assert missing(["AGENTS.md"], str(project / "a")) == [("AGENTS.md", why)]
    assert missing(["AGENTS.md"], str(project)) == []
    assert search_path("") == []
    assert search_path(str(project / "none")) == [str(project / "none")]


def test_what_is_no_regular_file_is_said(project):
    (project / "AGENTS.md").mkdir()
    os.mkfifo(project / "pipe")

    assert missing(["AGENTS.md", "pipe"], str(project)) == [
        ("AGENTS.md", "cannot be read: it is a directory, not a regular file"),
        ("pipe", "cannot be read: it is a named pipe, not a regular file"),
    ]


def test_in_a_directory_with_a_null_character_there_are_no_files():
    assert read_files(["AGENTS.md"], "/a\0b", 9) == []
    why = "matches no file in /a\\0b, or above it in the project"
    assert missing(["AGENTS.md"], "/a\0b") == [("AGENTS.md", why)]


def test_files_above_the_root_are_not_found(project):
    (project / "a" / ".git").touch()
    (project / "AGENTS.md").touch()

    assert names(["AGENTS.md"], project / "a" / "b") == []


def test_the_file_of_the_project_above_a_repository_is_its_root(project):
    (project / "a" / ".git").mkdir()
    (project / ".acp-conductor.yaml").touch()

    paths = [str(project / "a" / "b"), str(project / "a"), str(project)]
    assert search_path(paths[0]) == paths


def test_the_search_ends_before_the_home_directory_also_if_it_is_a_repository(project):
    (project.parent / ".git").mkdir()
    (project.parent / "AGENTS.md").touch()

    assert names(["AGENTS.md"], project) == []
    assert names(["AGENTS.md"], project.parent) == ["AGENTS.md"]


def test_the_search_ends_before_a_directory_of_another_owner(project, monkeypatch):
    (project / ".git").mkdir()
    stat = os.stat

    def stat_with_another_owner(path, **keywords):
        found = list(stat(path, **keywords))
        found[4] += path == str(project)
        return os.stat_result(found)

    monkeypatch.setattr(files.os, "stat", stat_with_another_owner)

    assert search_path(str(project / "a" / "b")) == [str(project / "a" / "b")]


def test_absolute_patterns_and_those_with_dots_are_taken_as_they_are(project):
    (project / ".git").mkdir()
    (project / "AGENTS.md").touch()

    assert names([str(project / "*.md")], project / "a") == [str(project / "AGENTS.md")]
    assert names(["../AGENTS.md"], project / "a" / "b") == []
    assert names(["../AGENTS.md"], project / "a") == ["../AGENTS.md"]


def test_a_file_that_cannot_be_read_says_why(project, monkeypatch):
    (project / "AGENTS.md").touch()
    found = found_files(["AGENTS.md"], str(project))
    (project / "AGENTS.md").unlink()
    monkeypatch.setattr(files, "found_files", lambda patterns, cwd: found)

    text = b"(cannot be read: No such file or directory)"
    assert read_files(["AGENTS.md"], str(project), 10) == [("AGENTS.md", text)]


def test_a_link_that_leads_out_of_the_project_is_not_followed(project):
    """The repository, or an agent in a sandbox, may have made it: the agent would get the file."""
    (project / ".git").mkdir()
    secret = project.parent / "id_rsa"
    secret.write_text("a private key")
    (project / "a" / "AGENTS.md").symlink_to(secret)
    (project / "docs").symlink_to(project.parent)
    (project / "a" / "CLAUDE.md").symlink_to("../README.md")
    (project / "README.md").write_text("read me")

    out = f"(cannot be read: {files._LEADS_OUT})".encode()
    cwd = str(project / "a")
    assert read_files(["AGENTS.md", "docs/id_*"], cwd, 99) == [
        ("AGENTS.md", out),
        ("../docs/id_rsa", out),
    ]
    assert read_files(["CLAUDE.md"], cwd, 99) == [("CLAUDE.md", b"read me")]
    absolute = str(project / "a" / "AGENTS.md")  # the agent can replace it all the same
    assert read_files([absolute, str(secret)], cwd, 99) == [
        (absolute, out),
        (str(secret), b"a private key"),
    ]
