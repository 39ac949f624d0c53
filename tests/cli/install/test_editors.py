"""Where the configuration of each editor is, and how it starts `acp-conductor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lupa
import pytest

from conductor.cli.install.editors import EDITORS, find_place
from conductor.cli.install.formats import (
    Launch,
    captured_path,
    is_temporary,
    own_program,
    wrap_words,
)

HOME = Path("/no/home")


def test_variables_choose_the_directory():
    environ = {"XDG_CONFIG_HOME": "/xdg", "NVIM_APPNAME": "lazy"}
    found = [find_place(EDITORS[name], environ, HOME, "a b") for name in ("codecompanion", "zed")]

    assert [path.as_posix() for path in found] == [
        "/xdg/lazy/after/plugin/acp-conductor-codecompanion-a-b.lua",
        "/xdg/zed/settings.json",
    ]


def test_emacs_reads_the_first_init_file_that_exists(tmp_path):
    for name in (".config/emacs/init.el", ".emacs.d/init.el", ".emacs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        assert find_place(EDITORS["agent-shell"], {}, tmp_path, "n") == tmp_path / name


CODECOMPANION = """
package.loaded["codecompanion.adapters"] = { extend = function(name, changes) return changes end }
config = { adapters = { acp = {} }, setup = function() end, mcp = %s }
package.loaded["codecompanion.config"] = config
"""


@pytest.mark.parametrize(
    ("mcp", "expected"),
    [
        ("{ opts = { acp_enabled = true } }", "inherit_from_config"),
        ("{ opts = { acp_enabled = false } }", []),
        ("nil", []),
    ],
)
def test_codecompanion_gives_its_mcp_servers_only_if_it_can(mcp, expected):
    """It sends the word `inherit_from_config` itself to the agent if they are turned off."""
    lua = lupa.LuaRuntime()
    lua.execute(CODECOMPANION % mcp)
    format = EDITORS["codecompanion"].format
    lua.execute(format.snippet("", Launch("r", ("/bin/acp-conductor",), ("run", "c.yaml"))))

    found = lua.eval("config.adapters.acp.r().defaults.mcpServers")
    assert (found if isinstance(found, str) else list(found)) == expected


def test_without_a_script_the_interpreter_runs_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert own_program() == (str(tmp_path / "python"), "-P", "-m", "conductor")


def test_paths_in_the_words_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert wrap_words("a.yaml", []) == ["wrap", "--chain", f"{tmp_path}/a.yaml", "--"]
    assert wrap_words(None, ["usage", "b.py:C:{x: d.py:E}", "context:{files: [x.py:]}"]) == [
        *("wrap", "--use", "usage", "--use", f"{tmp_path}/b.py:C:{{x: d.py:E}}"),
        *("--use", "context:{files: [x.py:]}", "--"),
    ]


def test_of_path_what_exists_is_kept_once(tmp_path):
    path = os.pathsep.join(["", ".", str(tmp_path), "/no/such", "/", str(tmp_path)])

    assert captured_path({"PATH": path}) == f"{tmp_path}{os.pathsep}/"
    assert captured_path({}) == ""


def test_an_installation_of_uvx_is_temporary():
    assert is_temporary(["/home/me/.cache/uv/archive-v0/x1/bin/acp-conductor"])
    assert not is_temporary(["/home/me/.local/share/uv/tools/acp-conductor/bin/acp-conductor"])
