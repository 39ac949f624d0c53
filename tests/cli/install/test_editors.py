"""Where the configuration of each editor is, by platform."""

from __future__ import annotations

import re
from pathlib import Path

import lupa
import pytest

from conductor.cli.install.editors import EDITORS, current_platform, find_place
from conductor.cli.install.formats import Launch

HOME = Path("/no/home")


@pytest.mark.parametrize(
    ("editor", "linux", "macos", "windows"),
    [
        ("zed", ".config/zed/settings.json", ".config/zed/settings.json", "R/Zed/settings.json"),
        ("jetbrains", *[".jetbrains/acp.json"] * 3),
        (
            "vscode",
            ".config/Code/User/settings.json",
            "Library/Application Support/Code/User/settings.json",
            "R/Code/User/settings.json",
        ),
        ("acpx", *[".acpx/config.json"] * 3),
        ("agent-shell", ".emacs.d/init.el", ".emacs.d/init.el", "R/.emacs.d/init.el"),
        (
            "avante",
            *[".config/nvim/after/plugin/acp-conductor-avante-a-b.lua"] * 2,
            "L/nvim/after/plugin/acp-conductor-avante-a-b.lua",
        ),
    ],
)
def test_usual_places(editor, linux, macos, windows):
    for platform, place in [("linux", linux), ("macos", macos), ("windows", windows)]:
        place = re.sub("^R/", "AppData/Roaming/", place)
        place = re.sub("^L/", "AppData/Local/", place)
        found = find_place(EDITORS[editor], platform, {}, HOME, "a b")
        assert found.relative_to(HOME).as_posix() == place


def test_variables_choose_the_directory():
    environ = {"XDG_CONFIG_HOME": "/xdg", "NVIM_APPNAME": "lazy", "APPDATA": "/roaming"}
    found = [
        find_place(EDITORS["codecompanion"], "linux", environ, HOME, "n"),
        find_place(EDITORS["zed"], "linux", environ, HOME, "n"),
        find_place(EDITORS["zed"], "windows", environ, HOME, "n"),
    ]

    assert [path.as_posix() for path in found] == [
        "/xdg/lazy/after/plugin/acp-conductor-codecompanion-n.lua",
        "/xdg/zed/settings.json",
        "/roaming/Zed/settings.json",
    ]


def test_emacs_reads_the_first_init_file_that_exists(tmp_path):
    for name in (".config/emacs/init.el", ".emacs.d/init.el", ".emacs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        found = find_place(EDITORS["agent-shell"], "linux", {}, tmp_path, "n")
        assert found == tmp_path / name


@pytest.mark.parametrize(
    ("name", "platform"),
    [("linux", "linux"), ("darwin", "macos"), ("win32", "windows"), ("freebsd14", "linux")],
)
def test_platforms(name, platform):
    assert current_platform(name) == platform


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
