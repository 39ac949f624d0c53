"""Real packages of npm and PyPI: locked, installed, started, and started again without network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conductor.errors import RegistryError
from conductor.registry.install import ensure_installed, make_pin
from conductor.registry.npm import pin_npm
from conductor.registry.pins import read_lock, write_lock
from conductor.registry.source import Entry, PackageDistribution

from .conftest import DEAD_PROXY, entry, tar_of, wheel

pytestmark = pytest.mark.external

NPM_AGENT = "pi-acp"
"""An adapter that answers `initialize` without its agent; nine packages, 7 MB."""
PYTHON_AGENT = """
import asyncio
import acp
from acp.schema import AgentCapabilities, Implementation

class Echo(acp.Agent):
    async def initialize(self, protocol_version, **more):
        info = Implementation(name="echo-acp", version="1.0.0")
        return acp.InitializeResponse(
            protocol_version=1, agent_capabilities=AgentCapabilities(), agent_info=info
        )

asyncio.run(acp.run_agent(Echo()))
"""


def conductor(*words, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "conductor", *map(str, words)],
        env={**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def npm() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")


def test_an_agent_of_npm_is_locked_and_starts_offline(npm, tmp_path):
    path = tmp_path / "review.yaml"
    path.write_text(f"version: 1\nagent: {NPM_AGENT}\n")
    locked = conductor("lock", path, home=tmp_path)
    assert locked.returncode == 0, locked.stderr
    assert f"{NPM_AGENT} 0.0.34 (npx, 9 packages)" in locked.stdout
    pin = read_lock(str(path.with_suffix(".lock"))).pins[NPM_AGENT]
    assert all("integrity" in each for each in pin.packages.values())
    assert "://" not in path.with_suffix(".lock").read_text()

    shutil.rmtree(tmp_path / ".npm", ignore_errors=True)
    started = conductor("check", "--start", path, home=tmp_path, **DEAD_PROXY)
    assert started.returncode == 0, started.stdout + started.stderr
    assert "pi ACP adapter 0.0.34" in started.stdout

    # Other content than the pinned one is refused, with both checksums.
    wrong = "sha512-" + "A" * 86 + "=="
    isexe = pin.packages["node_modules/isexe"]
    packages = {**pin.packages, "node_modules/isexe": {**isexe, "integrity": wrong}}
    other = msgspec.structs.replace(pin, packages=packages)
    write_lock(str(path.with_suffix(".lock")), {NPM_AGENT: other})
    shutil.rmtree(tmp_path / "data")
    refused = conductor("lock", path, home=tmp_path)
    assert refused.returncode == 1
    assert wrong in refused.stderr
    assert isexe["integrity"] in refused.stderr
    assert "not the one that was pinned" in refused.stderr


def test_npm_asks_the_registry_of_the_user_not_that_of_a_directory_above(
    npm, server, tmp_path, monkeypatch
):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".npmrc").write_text(f"registry={server.url}/user/\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / ".npmrc").write_text(f"registry={server.url}/other/\n")
    (tmp_path / "package.json").write_text('{"workspaces":["**"]}')
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with pytest.raises(RegistryError, match=f"{server.url}/user/notes"):
        pin_npm(PackageDistribution("notes"), scripts=False)
    assert set(server.asked) == {"/user/notes"}


def test_npm_runs_no_git_for_a_package(npm, server, tmp_path, monkeypatch):
    version = {"name": "notes", "version": "1.0.0", "dependencies": {"g": "git+ssh://localhost/g"}}
    version["dist"] = {"tarball": f"{server.url}/notes.tgz", "integrity": "sha512-x"}
    document = {"name": "notes", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    server.put("/notes", json.dumps(document).encode())
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    git.chmod(0o755)
    monkeypatch.setenv("npm_config_registry", f"{server.url}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(RegistryError, match="git"):
        pin_npm(PackageDistribution("notes"), scripts=False)
    assert not (tmp_path / "ran").exists()


def test_an_agent_of_pypi_is_locked_and_starts_offline(tmp_path):
    """The agent is a wheel of this test, what it needs is from PyPI."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "echo_acp", "1.0.0", PYTHON_AGENT, "agent-client-protocol==0.12.1")
    registry = tmp_path / "registry.json"
    agent = entry("echo-acp", uvx={"package": "echo-acp==1.0.0"})
    registry.write_text(json.dumps({"agents": [agent]}))
    path = tmp_path / "review.yaml"
    path.write_text("version: 1\nagent: echo-acp\nregistry: ./registry.json\n")
    locked = conductor("lock", path, home=tmp_path, UV_FIND_LINKS=str(wheels))
    assert locked.returncode == 0, locked.stderr
    pin = read_lock(str(path.with_suffix(".lock"))).pins["echo-acp"]
    assert any(line.startswith("pydantic==") for line in pin.requirements)
    assert all("--hash=sha256:" in line for line in pin.requirements)

    started = conductor("check", "--start", path, home=tmp_path, **DEAD_PROXY)
    assert started.returncode == 0, started.stdout + started.stderr
    assert "echo-acp 1.0.0" in started.stdout


@pytest.mark.parametrize("allowed", [False, True])
def test_scripts_of_npm_packages_run_only_if_allowed_and_without_secrets(
    npm, server, tmp_path, monkeypatch, allowed
):
    package = {
        "name": "echo",
        "version": "1.0.0",
        "bin": {"echo": "echo.js"},
        "scripts": {"postinstall": "node post.js"},
    }
    post = "require('fs').writeFileSync('ran.json', JSON.stringify(process.env))"
    files = {"package.json": json.dumps(package), "post.js": post, "echo.js": "#!/usr/bin/env node"}
    archive = tar_of({f"package/{name}": text for name, text in files.items()})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    dist = {"tarball": server.put("/echo/-/echo-1.0.0.tgz", archive), "integrity": integrity}
    version = {**package, "hasInstallScript": True, "dist": dist}
    document = {"name": "echo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    server.put("/echo", json.dumps(document).encode())
    monkeypatch.setenv("npm_config_registry", f"{server.url}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    monkeypatch.setenv("API_KEY", "hunter2")
    pin = make_pin(msgspec.convert(entry(npx={"package": "echo"}), Entry), scripts=allowed)
    directory, record = ensure_installed("echo", pin)
    ran = directory / "node_modules" / "echo" / "ran.json"

    assert record.command(directory)[0] == "node"
    assert ran.exists() == allowed
    assert not allowed or "hunter2" not in ran.read_text()

    shutil.rmtree(directory)
    server.bodies.clear()
    assert ensure_installed("echo", pin)[0] == directory  # of npm's cache
