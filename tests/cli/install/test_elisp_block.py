"""The block in the Emacs init file: one for each name, replaced and removed by its markers."""

from __future__ import annotations

from conductor.cli.install.code_blocks import ElispBlock, elisp_string, elisp_symbol
from conductor.cli.install.formats import Launch

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


def test_a_file_of_the_block_alone_is_not_kept():
    text, _ = ElispBlock().install("", ALL)

    assert ElispBlock().uninstall(text, "my chain", []) is None


def test_strings_and_symbols():
    assert elisp_string('a "b" \\ c') == '"a \\"b\\" \\\\ c"'
    assert elisp_symbol("Claude Code's") == "Claude\\ Code\\'s"
