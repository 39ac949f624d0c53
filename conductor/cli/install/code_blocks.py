"""Configuration in the language of an editor.

Neovim: a Lua file of its own for a plugin, in `after/plugin/`, which Neovim reads at each start. A
person's `init.lua` may do anything, so it is not edited. The file adds the agent to the plugin's
configuration after its set-up, also if a plugin manager loads the plugin later.

Emacs: a marked block at the end of the init file. It advises `acp-make-client`, through which
agent-shell starts each agent, and puts the chain before the agent's command.
(`agent-shell-command-prefix` would also be put before shell commands.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from conductor.cli.install.formats import Edit, FormatError, Launch

__all__ = ["ElispBlock", "LuaFile", "elisp_string", "elisp_symbol", "lua_string"]

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


@attrs.frozen
class ElispBlock:
    """A block for all agents, or for the agent with the identifier `launch.wrapped`."""

    def install(self, text: str, launch: Launch) -> tuple[str, Sequence[Edit]]:
        newline = "\r\n" if "\r\n" in text else "\n"
        block = self.snippet(text, launch).replace("\n", newline)
        old = _pattern(launch.wrapped or launch.name)
        if old.search(text):
            return old.sub(lambda _: block, text, count=1), []
        separator = newline if text and not text.endswith("\n") else ""
        return f"{text}{separator}{block}", []

    def uninstall(self, text: str, name: str, edits: Sequence[Edit]) -> str | None:
        return _pattern(name).sub("", text) or None

    def snippet(self, text: str, launch: Launch) -> str:
        name = launch.wrapped or launch.name
        begin, end = _markers(name)
        words = " ".join(map(elisp_string, launch.argv))
        body = _ALL if launch.wrapped is None else _ONE
        return _TEMPLATE % {
            "begin": begin,
            "end": end,
            "function": f"acp-conductor-wrap-{elisp_symbol(name)}",
            "body": body % {"words": words, "agent": elisp_symbol(name)},
        }


def elisp_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def elisp_symbol(name: str) -> str:
    """A name as a symbol in Lisp; special characters are escaped."""
    return re.sub(r"([^\w\-+*/<>=!?$%&.:])", r"\\\1", name)


def _markers(name: str) -> tuple[str, str]:
    shown = " ".join(name.split())
    return f";; >>> acp-conductor: {shown} >>>", f";; <<< acp-conductor: {shown} <<<"


def _pattern(name: str) -> re.Pattern[str]:
    begin, end = map(re.escape, _markers(name))
    return re.compile(rf"^{begin}.*?^{end}(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


_ALL = """\
  (let ((wrap '(%(words)s)))
    (plist-put (plist-put (copy-sequence arguments) :command (car wrap))
               :command-params (append (cdr wrap)
                                       (list (plist-get arguments :command))
                                       (plist-get arguments :command-params)))))
"""
_ONE = """\
  (if (eq '%(agent)s
          (map-elt (agent-shell-get-config (plist-get arguments :context-buffer)) :identifier))
      (let ((wrap '(%(words)s)))
        (plist-put (plist-put (copy-sequence arguments) :command (car wrap))
                   :command-params (append (cdr wrap)
                                           (list (plist-get arguments :command))
                                           (plist-get arguments :command-params))))
    arguments))
"""
_TEMPLATE = """\
%(begin)s Written by `acp-conductor install agent-shell`.
(defun %(function)s (arguments)
  "Put the chain before the agent of `acp-make-client'."
%(body)s(with-eval-after-load 'acp
  (advice-add 'acp-make-client :filter-args #'%(function)s))
%(end)s
"""
