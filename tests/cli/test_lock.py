"""`acp-conductor lock` and `update`, from the outside."""

from __future__ import annotations

import json

import pytest
from registry.conftest import AGENT, DEAD_PROXY, Server, binary_entry, server, tar_of

__all__ = ["server"]  # a fixture

pytestmark = pytest.mark.slow


@pytest.fixture
def release(server: Server, tmp_path):
    """Publish a version of `echo` in the registry beside the chain file."""

    def publish(version: str) -> None:
        url = server.put(f"/echo-{version}.tgz", tar_of({"echo": AGENT}))
        document = {"agents": [binary_entry(url, version)]}
        (tmp_path / "registry.json").write_text(json.dumps(document))

    return publish


@pytest.fixture
def home(tmp_path):
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


FILE = "registry: ./registry.json\nproxies: [{use: usage}]\nagent: echo\n"


def test_a_chain_is_locked_updated_and_answers_offline(run, chain_file, release, server, home):
    release("1.0.0")
    path = chain_file(FILE)
    detail = "binary, checksums of 1 of 1 platforms"
    locked = run("lock", path, env=home)
    assert (locked.returncode, locked.stdout) == (0, f"chain.lock: echo 1.0.0 ({detail})\n")
    assert "installed echo 1.0.0 in" in locked.stderr

    release("1.1.0")
    assert run("lock", path, env=home).stdout == f"chain.lock: echo 1.0.0 ({detail}, unchanged)\n"
    updated = run("update", path, "echo", env=home)
    assert updated.stdout == f"chain.lock: echo 1.0.0 → 1.1.0 ({detail})\n"

    server.bodies.clear()
    answered = run("prompt", path, "say hello", env={**home, **DEAD_PROXY})
    assert (answered.returncode, "hello" in answered.stdout) == (0, True), answered.stderr


@pytest.mark.fast
def test_a_chain_without_names_has_nothing_to_lock(run, chain_file, home):
    result = run("lock", chain_file("agent: {use: test-agent}\n"), env=home)

    assert (result.returncode, result.stdout) == (0, "")
    assert "nothing to lock" in result.stderr


def test_a_failure_has_a_remedy_and_exit_code_1(run, chain_file, release, server, home):
    release("1.0.0")
    server.bodies.clear()
    result = run("lock", chain_file(FILE), env=home)

    assert result.returncode == 1
    assert "error: " in result.stderr
    assert "answers 404" in result.stderr


def test_update_names_what_the_chain_has(run, chain_file, release, home):
    release("1.0.0")
    result = run("update", chain_file(FILE), "ehco", env=home)

    assert result.returncode == 2
    assert "names no `ehco` from the registry, but echo" in result.stderr
