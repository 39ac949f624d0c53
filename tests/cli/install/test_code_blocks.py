"""Configuration in the languages of editors.

The Lua file adds the agent after the set-up of the plugin, also of one that is loaded later. The
Emacs init file has one block for each name, replaced and removed by its markers."""

from __future__ import annotations

import lupa
import pytest

from conductor.cli.install.code_blocks import (
    ElispBlock,
    LuaFile,
    elisp_string,
    elisp_symbol,
    lua_string,
)
from conductor.cli.install.formats import FormatError, Launch

FORMAT = LuaFile(
    editor="codecompanion",
    module="plugin.config",
    add="local function add(config)\n  config.agents[name] = argv\nend",
    wrap="local function add(config)\n  config.agents[name] = { argv[1], config.agents.g }\nend",
)
PLUGIN = """
package.preload["plugin.config"] = function()
  local config = { agents = {} }
  config.setup = function(agents)
    config.agents = agents
    return "done"
  end
  return config
end
"""
RUN = Launch("r", ("/bin/acp-conductor",), ("run", 'a "b".yaml'))
WRAP = Launch("g", ("/bin/acp-conductor",), ("wrap", "--"), wrapped="g")
SETUP = 'result = require("plugin.config").setup({ g = "gemini" })\n'


def agents(*chunks: str) -> dict[str, object]:
    """The agents of the plugin after these chunks of Lua."""
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)
    for chunk in (PLUGIN, *chunks):
        lua.execute(chunk)
    assert lua.eval("result") == "done"
    found = lua.eval('require("plugin.config").agents')
    return {
        name: list(value.values()) if lupa.lua_type(value) == "table" else value
        for name, value in found.items()
    }


ADDED = ["/bin/acp-conductor", "run", 'a "b".yaml']


def test_the_agent_is_added_to_a_plugin_that_is_set_up():
    assert agents(SETUP, FORMAT.snippet("", RUN)) == {"g": "gemini", "r": ADDED}


def test_the_agent_is_added_when_the_plugin_is_loaded_later():
    assert agents(FORMAT.snippet("", RUN), SETUP) == {"g": "gemini", "r": ADDED}


def test_the_agent_is_added_again_after_another_set_up():
    assert agents(SETUP, FORMAT.snippet("", RUN), SETUP) == {"g": "gemini", "r": ADDED}


def test_an_agent_of_the_plugin_is_wrapped():
    assert agents(FORMAT.snippet("", WRAP), SETUP) == {"g": ["/bin/acp-conductor", "gemini"]}


@pytest.mark.parametrize("text", ["", 'a "b" \\ c', "é\n\r\0", "'"])
def test_strings_are_read_back_by_lua(text):
    assert lupa.LuaRuntime().eval(lua_string(text)) == text


def test_a_file_of_a_person_is_not_replaced():
    with pytest.raises(FormatError, match="this file is not from acp-conductor"):
        FORMAT.install("-- mine\n", RUN)


ALL = Launch("my chain", ("/bin/acp-conductor",), ("wrap", "--"))
ONE = Launch("x", ("/bin/acp-conductor",), ("wrap", "--"), wrapped="gemini-cli")


def test_blocks_follow_what_is_there_and_are_removed_alone():
    format, before = ElispBlock(), "(setq a 1)\r\n"
    both = before
    for launch in (ALL, ONE):
        both, _ = format.install(both, launch)
        assert format.install(both, launch)[0] == both

    assert both.count("\r\n") == both.count("\n")
    assert "(defun acp-conductor-wrap-my\\ chain (arguments)" in both
    assert "(if (eq 'gemini-cli" in both
    without = format.uninstall(both, "my chain", [])
    assert without == format.install(before, ONE)[0]
    assert format.uninstall(without or "", "gemini-cli", []) == before


def test_strings_and_symbols():
    assert elisp_string('a "b" \\ c') == '"a \\"b\\" \\\\ c"'
    assert elisp_symbol("Claude Code's") == "Claude\\ Code\\'s"
