"""Editors for real: `install`, a prompt from the editor through the chain, `uninstall` to the byte.

    EDITOR_PLUGINS=~/src python -m pytest -m external tests/interop/editors

`EDITOR_PLUGINS` has checkouts of codecompanion.nvim, plenary.nvim, avante.nvim (built), nui.nvim,
agent-shell, acp.el and shell-maker. acpx is in `tests/interop/test_acpx.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from .conftest import HERE, Desk

Needs = Callable[..., None]

CODECOMPANION = """\
-- My plugins
vim.opt.rtp:append("PLUGINS/plenary.nvim")
vim.opt.rtp:append("PLUGINS/codecompanion.nvim")
require("codecompanion").setup({ adapters = { acp = {
  mine = function()
    return require("codecompanion.adapters").extend("goose", {
      commands = { default = { "PYTHON", "-m", "conductor.testing.agent" } } })
  end } } })
"""
AVANTE = """\
vim.opt.rtp:append("PLUGINS/plenary.nvim")
vim.opt.rtp:append("PLUGINS/nui.nvim")
vim.opt.rtp:append("PLUGINS/avante.nvim")
require("avante").setup({ provider = "mine", behaviour = { auto_suggestions = false },
  acp_providers = { mine = { command = "PYTHON", args = { "-m", "conductor.testing.agent" } } } })
"""
AGENT_SHELL = """\
;; My packages
(dolist (name '("acp.el" "shell-maker" "agent-shell"))
  (add-to-list 'load-path (concat "PLUGINS/" name)))
(require 'agent-shell)
(setq agent-shell-goose-authentication (agent-shell-make-goose-authentication :none t)
      agent-shell-goose-acp-command '("PYTHON" "-m" "conductor.testing.agent")
      agent-shell-session-strategy 'new)
"""
ANSWER = "[chain] "
ADD = ("--chain", "review.yaml")


def wrap(name: str) -> tuple[str, ...]:
    return ("--use", "./mark.py:Mark", "--wrap", name)


def neovim(desk: Desk, script: str, agent: str) -> str:
    return desk.run("env", f"AGENT={agent}", "nvim", "--headless", "-S", str(HERE / script))


def emacs(desk: Desk) -> str:
    init = str(desk.home / ".emacs.d" / "init.el")
    return desk.run("emacs", "--batch", "-l", init, "-l", str(HERE / "agent-shell.el"))


@pytest.mark.parametrize(("agent", "words"), [("review", ADD), ("mine", wrap("mine"))])
def test_codecompanion(desk: Desk, needs: Needs, agent: str, words: tuple[str, ...]) -> None:
    needs("nvim", "codecompanion.nvim", "plenary.nvim")
    desk.write(".config/nvim/init.lua", CODECOMPANION)
    before = desk.settings()
    desk.acp_conductor("install", "codecompanion", *words, "--write")

    assert ANSWER in neovim(desk, "codecompanion.lua", agent)

    desk.acp_conductor("uninstall", "codecompanion")
    assert desk.settings() == before


@pytest.mark.parametrize(("agent", "words"), [("review", ADD), ("mine", wrap("mine"))])
def test_avante(desk: Desk, needs: Needs, agent: str, words: tuple[str, ...]) -> None:
    needs("nvim", "avante.nvim", "plenary.nvim", "nui.nvim")
    desk.write(".config/nvim/init.lua", AVANTE)
    before = desk.settings()
    desk.acp_conductor("install", "avante", *words, "--write")

    assert ANSWER in neovim(desk, "avante.lua", agent)

    desk.acp_conductor("uninstall", "avante")
    assert desk.settings() == before


@pytest.mark.parametrize("words", [ADD, wrap("goose")])
def test_agent_shell(desk: Desk, needs: Needs, words: tuple[str, ...]) -> None:
    needs("emacs", "agent-shell", "acp.el", "shell-maker")
    desk.write(".emacs.d/init.el", AGENT_SHELL)
    before = desk.settings()
    desk.acp_conductor("install", "agent-shell", *words, "--write")

    assert ANSWER in emacs(desk)

    desk.acp_conductor("uninstall", "agent-shell")
    assert desk.settings() == before


def test_toad(desk: Desk, needs: Needs) -> None:
    needs("toad")
    printed = desk.acp_conductor("install", "toad", *ADD).splitlines()
    [command] = [line for line in printed if line.startswith("toad ")]

    with desk.terminal(shlex.split(command)) as toad:
        toad.wait_for(" Ask ")  # the mode of the session, which Toad has then
        toad.type("say hello")
        toad.wait_for("say hello")
        toad.type("\r")
        toad.wait_for(ANSWER)
