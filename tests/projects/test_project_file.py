"""A project's file is parsed from the bytes that are trusted, and from no others."""

from __future__ import annotations

import hashlib
import os

import pytest

from conductor.errors import ChainFileError
from conductor.projects import project_file
from conductor.projects.project_file import Untrusted, has_hashes, read_project_file, read_user_file


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_all_files_that_decide_what_runs_are_hashed(project):
    path = project("[{chain: tools.yaml}, {use: './mark.py:Mark'}, {registry: some-agent}]")
    directory = path.parent
    (directory / "tools.yaml").write_text("version: 1\nproxies: [{run: tool}]\n")
    (directory / "mark.py").write_text("class Mark: pass\n")

    found = read_project_file(str(path), os.environ)

    assert [spec.name for spec in found.chain.flat()] == ["tools/tool", "Mark", "some-agent"]
    assert found.files == {
        str(path): sha(path),
        str(directory / "tools.yaml"): sha(directory / "tools.yaml"),
        str(directory / "mark.py"): sha(directory / "mark.py"),
        str(directory / ".acp-conductor.lock"): "-",
    }
    assert found.texts == {str(each): each.read_text() for each in (path, directory / "tools.yaml")}


@pytest.mark.parametrize("changed", [".acp-conductor.yaml", "tools.yaml", "mark.py", "added.lock"])
def test_a_change_of_any_of_them_is_noticed(project, changed):
    path = project("[{chain: tools.yaml}, {use: './mark.py:Mark'}, {registry: some-agent}]")
    directory = path.parent
    (directory / "tools.yaml").write_text("version: 1\nproxies: [{run: tool}]\n")
    (directory / "mark.py").write_text("class Mark: pass\n")
    files = read_project_file(str(path), os.environ).files
    assert has_hashes(files)

    name = ".acp-conductor.lock" if changed == "added.lock" else changed
    with open(directory / name, "a") as file:
        file.write("\n")

    other = "" if name == path.name else rf" \(.*{name}\)"
    with pytest.raises(Untrusted, match=f"has changed since you trusted it{other}$"):
        read_project_file(str(path), os.environ, files)
    assert not has_hashes(files)


def test_an_untrusted_file_is_not_parsed(project, monkeypatch):
    path = project()
    monkeypatch.setattr(project_file, "load_and_diagnose", None)

    with pytest.raises(Untrusted):
        read_project_file(str(path), os.environ, {str(path): "another hash"})


def test_the_bytes_that_were_hashed_are_parsed(project, monkeypatch):
    path = project("[{run: harmless}]")
    read, reads = project_file.read_own_file, []

    def read_and_replace(name):
        data = read(name)
        reads.append(name)
        path.write_text("version: 1\nproxies: [{run: evil}]\n")
        return data

    monkeypatch.setattr(project_file, "read_own_file", read_and_replace)
    found = read_project_file(str(path), os.environ)

    assert [spec.run for spec in found.chain.proxies] == [("harmless",)]
    assert found.files[str(path)] != sha(path)
    with pytest.raises(Untrusted):
        read_project_file(str(path), os.environ, found.files)


def test_a_file_that_others_can_change_is_refused(project):
    path = project()
    path.chmod(0o666)

    with pytest.raises(Untrusted, match="every user of this machine can change it"):
        read_project_file(str(path), os.environ)


def test_a_linked_file_is_refused(project):
    path = project(name="elsewhere")
    link = project(name="project")
    link.unlink()
    link.symlink_to(path)

    with pytest.raises(Untrusted, match="symbolic link"):
        read_project_file(str(link), os.environ)


def test_an_agent_is_a_mistake(project):
    path = project(rest="agent: {run: my-agent}\n")

    with pytest.raises(ChainFileError, match="so it has no `agent:`"):
        read_project_file(str(path), os.environ)
    with pytest.raises(ChainFileError, match="so it has no `agent:`"):
        read_user_file(str(path), os.environ)


def test_the_users_file_may_be_a_link(project, home):
    path = project()
    (home / "chain.yaml").symlink_to(path)

    assert [each.use for each in read_user_file(str(home / "chain.yaml"), {}).proxies] == [
        "context"
    ]
    path.chmod(0o666)
    with pytest.raises(ChainFileError, match="every user of this machine can change it"):
        read_user_file(str(home / "chain.yaml"), {})
