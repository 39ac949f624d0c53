"""Table of the editors of `install`: path and format of the configuration, and the next step.

Paths begin with `~` (the home directory) or `CONFIG` (`$XDG_CONFIG_HOME`, else `~/.config`).
`NVIM_APPNAME` is replaced by that variable, else `nvim`; `NAME` by the name of the agent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from conductor.cli.install.code_blocks import ElispBlock, LuaFile
from conductor.cli.install.formats import ConfigFormat
from conductor.cli.install.json_settings import JsonSettings

__all__ = ["EDITORS", "OTHER_NAMES", "Editor", "find_place"]


@attrs.frozen
class Editor:
    """`places` are its files: the first that exists is used, else the last.

    Without `format` the editor has no file for agents: `shown` is the command to use, where
    `{command}` is that of the chain, `{name}` its name, `{program}` acp-conductor, and `{file}` the
    chain file.
    """

    name: str
    title: str
    then: str
    """Next step for the user after the installation; `{name}` is the agent's name."""
    format: ConfigFormat | None = None
    places: tuple[str, ...] = ()
    has_poor_path: bool = False
    """Whether it is started from a desktop, where PATH lacks what shells add."""
    selects_agent: bool = False
    """Whether the chain goes before all its agents, so that no agent is named."""
    shown: str | None = None


_MAC_SUPPORT: Final = "~/Library/Application Support"
_NEOVIM: Final = "CONFIG/NVIM_APPNAME/after/plugin"

_CODECOMPANION_ADD: Final = """
local function add(config)
  config.adapters.acp[name] = function()
    local inherits = config.mcp and config.mcp.opts and config.mcp.opts.acp_enabled
    return require("codecompanion.adapters").extend("goose", {
      name = name,
      formatted_name = name,
      commands = { default = argv },
      defaults = { mcpServers = inherits and "inherit_from_config" or {}, timeout = 30000 },
    })
  end
end
"""
_CODECOMPANION_WRAP: Final = """
local wrapped
local function add(config)
  local agent = config.adapters.acp[name]
  if agent == nil or agent == wrapped then
    return
  end
  wrapped = function()
    local adapter = require("codecompanion.adapters.acp").extend(agent, {})
    for key, command in pairs(adapter.commands or {}) do
      adapter.commands[key] = vim.list_extend(vim.deepcopy(argv), command)
    end
    return adapter
  end
  config.adapters.acp[name] = wrapped
end
"""
_AVANTE_ADD: Final = """
local function add(config)
  if config.acp_providers == nil then
    return -- without set-up
  end
  local agent = { command = argv[1], args = vim.list_slice(argv, 2), env = env }
  config.override({ acp_providers = { [name] = agent } })
end
"""
_AVANTE_WRAP: Final = """
local function add(config)
  local agent = (config.acp_providers or {})[name]
  if agent == nil or agent.command == argv[1] then
    return
  end
  local args = vim.list_slice(argv, 2)
  table.insert(args, agent.command)
  vim.list_extend(args, agent.args or {})
  config.override({ acp_providers = { [name] = { command = argv[1], args = args } } })
end
"""

_ALL: Final = (
    Editor(
        name="zed",
        title="Zed",
        format=JsonSettings(("agent_servers",), {"type": "custom"}),
        places=("CONFIG/zed/settings.json",),
        has_poor_path=True,
        then="choose {name!r} in the + menu of the agent panel",
    ),
    Editor(
        name="jetbrains",
        title="JetBrains IDEs",
        format=JsonSettings(("agent_servers",)),
        places=("~/.jetbrains/acp.json",),
        has_poor_path=True,
        then="choose {name!r} in the list of agents of the AI Chat",
    ),
    Editor(
        name="vscode",
        title="VS Code with the extension ACP Client",
        format=JsonSettings(("acp.agents",)),
        places=(
            f"{_MAC_SUPPORT if sys.platform == 'darwin' else 'CONFIG'}/Code/User/settings.json",
        ),
        has_poor_path=True,
        then="connect to {name!r} in the view of ACP Client",
    ),
    Editor(
        name="acpx",
        title="acpx",
        format=JsonSettings(("agents",), is_line=True),
        places=("~/.acpx/config.json",),
        then='run: acpx {name} exec "…"',
    ),
    Editor(
        name="codecompanion",
        title="CodeCompanion.nvim",
        format=LuaFile(
            editor="codecompanion",
            module="codecompanion.config",
            add=_CODECOMPANION_ADD,
            wrap=_CODECOMPANION_WRAP,
        ),
        places=(f"{_NEOVIM}/acp-conductor-codecompanion-NAME.lua",),
        then="restart Neovim, then: :CodeCompanionChat adapter={name}",
    ),
    Editor(
        name="avante",
        title="avante.nvim",
        format=LuaFile(
            editor="avante",
            module="avante.config",
            add=_AVANTE_ADD,
            wrap=_AVANTE_WRAP,
        ),
        places=(f"{_NEOVIM}/acp-conductor-avante-NAME.lua",),
        then="restart Neovim, then choose {name!r} in :AvanteSwitchProvider",
    ),
    Editor(
        name="agent-shell",
        title="Emacs agent-shell",
        format=ElispBlock(),
        places=(
            *("~/.emacs.el", "~/.emacs", "~/.emacs.d/init.el"),
            *("CONFIG/emacs/init.el", "~/.emacs.d/init.el"),
        ),
        selects_agent=True,
        then="restart Emacs, then: M-x agent-shell",
    ),
    Editor(
        name="toad",
        title="Toad",
        shown="toad acp --title {name} {command} .",
        then="Toad has no file for agents: start it with this command",
    ),
    Editor(
        name="marimo",
        title="marimo",
        shown="{program} serve {file} --listen 127.0.0.1:3017 --allow-origin http://localhost:2718",
        then="marimo connects to port 3017 for Claude (Gemini 3019, Codex 3021, OpenCode 3023, "
        "Cursor 3025): keep this command running, then start that agent in the agents panel",
    ),
)
EDITORS: Final = {editor.name: editor for editor in _ALL}


OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "emacs": ("agent-shell",),
    **dict.fromkeys(("neovim", "nvim", "vim"), ("codecompanion", "avante")),
    **dict.fromkeys(("code", "vs-code"), ("vscode",)),
    **dict.fromkeys(("intellij", "idea", "pycharm", "webstorm", "goland"), ("jetbrains",)),
}
"""Programs that people may name, and the editors of the table that they may mean."""


def find_place(editor: Editor, environ: Mapping[str, str], home: Path, name: str) -> Path:
    """The file to edit for an agent of this name: the first that exists, else the last."""
    file_name = re.sub(r"[^\w-]+", "-", name)
    roots = {"~": home, "CONFIG": Path(environ.get("XDG_CONFIG_HOME") or home / ".config")}
    found = []
    for place in editor.places:
        root, _, rest = place.partition("/")
        rest = rest.replace("NVIM_APPNAME", environ.get("NVIM_APPNAME") or "nvim")
        found.append(roots[root] / rest.replace("NAME", file_name))
    return next((path for path in found if os.path.lexists(path)), found[-1])
