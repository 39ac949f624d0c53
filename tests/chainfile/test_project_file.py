"""A project's file is parsed from the bytes that are trusted, and from no others."""

from __future__ import annotations

import hashlib
import os

import pytest

from conductor.chainfile import loader, project_file
from conductor.chainfile.project_file import (
    Untrusted,
    has_hashes,
    read_project_file,
    read_user_file,
    trusted_agent_file,
)
from conductor.errors import ChainFileError, RegistryError
from conductor.plugins.isolation import bootstrap_line, parse_bootstrap_line
from conductor.plugins.loading import load_class
from conductor.registry.resolve import resolved


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


PROXIES = """
  - chain: tools.yaml
  - use: ./mark.py:Mark
  - registry: some-agent
  - {use: failover, with: {agents: [{chain: ./other.yaml}], notes: [./notes.yaml]}}
"""


@pytest.fixture
def full(project):
    """A project with one file of each kind; its file, and the names of those that decide."""
    path = project(PROXIES, rest="registry: ./agents.json\n")
    directory = path.parent
    (directory / "inner").mkdir()
    for name, text in {
        "tools.yaml": "version: 1\nproxies: [{run: tool}]\n",
        "mark.py": "import helper, json\nclass Mark:\n def f(self):\n  from inner.a import x\n",
        "helper.py": "from inner import a",
        "inner/__init__.py": "",
        "inner/a.py": "from . import b",
        "inner/b.py": "import os, helper",
        "agents.json": "{}",
        "other.yaml": "version: 1\nagent: {use: ./agent.py:Other}\n",
        "agent.py": "",
    }.items():
        (directory / name).write_text(text)
    names = {str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()}
    for name in ("json.py", "unused.py", "notes.yaml"):
        (directory / name).write_text("not: a chain")
    return path, names


def test_all_files_that_decide_what_runs_are_hashed(full):
    path, names = full

    found = read_project_file(str(path), os.environ)

    assert [spec.name for spec in found.chain.flat()] == [
        *("tools/tool", "Mark", "some-agent", "failover")
    ]
    assert found.files == {
        str(path.parent / ".acp-conductor.lock"): "-",
        **{str(path.parent / name): sha(path.parent / name) for name in names},
    }
    assert found.texts.keys() == {str(path), str(path.parent / "tools.yaml")}


@pytest.mark.parametrize(
    "changed",
    [
        *(".acp-conductor.yaml", "tools.yaml", "mark.py", ".acp-conductor.lock", "helper.py"),
        *("inner/b.py", "agents.json", "other.yaml", "agent.py"),
    ],
)
def test_a_change_of_any_of_them_is_noticed(full, changed):
    path, _ = full
    files = read_project_file(str(path), os.environ).files
    assert has_hashes(files)

    with open(path.parent / changed, "a") as file:
        file.write("\n")

    other = "" if changed == path.name else rf" \(.*{changed}\)"
    with pytest.raises(Untrusted, match=f"has changed since you trusted it{other}$"):
        read_project_file(str(path), os.environ, files)
    assert not has_hashes(files)


def test_what_is_trusted_is_used_though_the_files_have_changed_since(full):
    """Also by a process of an isolated plugin that is started again."""
    path, _ = full
    (path.parent / "mark.py").write_text(
        "import contextlib, importlib\nfrom conductor.proxy import Proxy\nimport helper, yaml\n"
        "with contextlib.suppress(ModuleNotFoundError):\n"
        "  importlib.import_module('.unused', __package__)\n"
        "class Mark(Proxy):\n value, yaml = helper.value, yaml\n"
    )
    (path.parent / "helper.py").write_text("value = 'trusted'")
    (path.parent / "agents.json").write_text('{"agents": [], "extensions": []}')
    chain = read_project_file(str(path), os.environ).chain
    for name in ("mark.py", "helper.py", "yaml.py", "agents.json", "other.yaml"):
        (path.parent / name).write_text("raise SystemExit")
    (path.parent / ".acp-conductor.lock").write_text("evil")
    _, mark, agent, failover = chain.flat()

    for spec in (mark, parse_bootstrap_line(bootstrap_line(mark, "proxy"))[0]):
        cls = load_class(spec)
        assert cls.value == "trusted"
        assert hasattr(cls.yaml, "safe_load")
    with pytest.raises(RegistryError, match="has no `some-agent`") as caught:
        resolved(agent)
    assert "agents.json" in str(caught.value)
    second = trusted_agent_file(str(path.parent / "other.yaml"), os.environ, failover.files)
    assert second.agent.files == failover.files
    with pytest.raises(ChainFileError, match="the user has not trusted it"):
        trusted_agent_file(str(path.parent / "notes.yaml"), os.environ, failover.files)


def test_an_untrusted_file_is_not_parsed(project, monkeypatch):
    path = project()
    monkeypatch.setattr(loader, "load_chain", None)

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
