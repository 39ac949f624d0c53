"""A Lua file of its own for a Neovim plugin, in `after/plugin/`, which Neovim reads at each start.

A person's `init.lua` may do anything, so it is not edited. The file adds the agent to the plugin's
configuration after its set-up, also if a plugin manager loads the plugin later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from conductor.cli.install.formats import Edit, FormatError, Launch

__all__ = ["LuaFile", "lua_string"]

_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"}


def lua_string(text: str) -> str:
    return '"' + "".join(_ESCAPED.get(char, char) for char in text) + '"'


@attrs.frozen
class LuaFile:
    """`add` and `wrap` are the functions that add or change an agent, in Lua.

    Both are `add(config)` in Lua, where `config` is the module `module`. They may use the locals
    `name`, `argv` and `env`; in `wrap`, `name` is that of the agent to wrap.
    """

    editor: str
    module: str
    add: str
    wrap: str

    def install(self, text: str, launch: Launch) -> tuple[str, Sequence[Edit]]:
        new = self.snippet(text, launch)
        if text and not text.startswith(_first_line(self.editor)):
            raise FormatError("this file is not from acp-conductor", 0, "--file names another")
        return new, []

    def uninstall(self, text: str, name: str, edits: Sequence[Edit]) -> str | None:
        return None

    def snippet(self, text: str, launch: Launch) -> str:
        values = {
            "name": lua_string(launch.wrapped or launch.name),
            "argv": _lua_list(launch.argv),
            "env": _lua_table(launch.env),
        }
        body = (self.add if launch.wrapped is None else self.wrap).strip("\n")
        lines = [f"local {name} = {value}" for name, value in values.items() if name in body]
        hook = _HOOK % self.module
        return "\n".join(
            [
                *(_first_line(self.editor), *lines, "", body, ""),
                hook.lstrip("\n"),
            ]
        )


def _first_line(editor: str) -> str:
    return f"-- Written by `acp-conductor install {editor}`; `uninstall {editor}` deletes it."


def _lua_list(words: Iterable[str]) -> str:
    return "{ " + ", ".join(map(lua_string, words)) + " }"


def _lua_table(values: Mapping[str, str]) -> str:
    if not values:
        return "{}"
    pairs = ", ".join(
        f"[{lua_string(name)}] = {lua_string(value)}" for name, value in values.items()
    )
    return "{ " + pairs + " }"


_HOOK = """
-- Adds the agent after each set-up of the plugin, which may be loaded later than this file.
local function after_setup(config)
  local setup = config.setup
  config.setup = function(...)
    local result = setup(...)
    add(config)
    return result
  end
  return config
end

local module = "%s"
if type(package.loaded[module]) == "table" then
  add(after_setup(package.loaded[module]))
else
  local preload = package.preload[module]
  package.preload[module] = function()
    package.preload[module] = preload
    package.loaded[module] = nil
    return after_setup(require(module))
  end
end
"""
