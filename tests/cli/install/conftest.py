"""`install` and `uninstall` in this process, with a home directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conductor.cli.command_group import acp_conductor
from conductor.cli.install.formats import own_program

CHAIN = "version: 1\nname: review\nproxies: [{use: usage}]\nagent: {use: test-agent}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home and working directory, with `review.yaml`."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "NVIM_APPNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "relative:/usr/bin:/no/such/directory:/bin:/usr/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "review.yaml").write_text(CHAIN)
    return tmp_path


@pytest.fixture
def call(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command that must succeed, or end with `code`; returns its result.

    Plugins are not imported: that is another process, for a second.
    """
    monkeypatch.setattr("conductor.cli.load.check_options", lambda chain: None)

    def call(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(acp_conductor, words)
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def portable(home: Path) -> Callable[[str], str]:
    """A text without the places of this machine."""

    def portable(text: str) -> str:
        text = text.replace(own_program()[0], "/path/to/acp-conductor")
        return text.replace(str(home), "/home/me")

    return portable
