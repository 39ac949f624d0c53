"""A home directory, a project with a file, and the trust in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember

FILE = ".acp-conductor.yaml"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory without chain files."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(path / "state"))
    return path


@pytest.fixture
def project(home):
    """Write the file of a project; returns its path."""

    def write(proxies="[{use: context, with: {text: hello}}]", name="project", rest=""):
        directory = home / name
        directory.mkdir(exist_ok=True)
        path = directory / FILE
        path.write_text(f"version: 1\nproxies: {proxies}\n{rest}")
        return path

    return write


@pytest.fixture
def trust():
    """Trust a project's file as it is."""

    def trust(path: Path) -> None:
        remember(TrustedFile(str(path), read_project_file(str(path), os.environ).files))

    return trust
