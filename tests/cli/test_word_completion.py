"""What shells complete beside commands and options."""

from __future__ import annotations

import pytest
from click.shell_completion import CompletionItem, ShellComplete

from conductor.cli.command_group import acp_conductor


def offered(*words: str) -> list[CompletionItem]:
    """What is offered for the last of these words, which is begun."""
    *before, begun = words
    return ShellComplete(acp_conductor, {}, "acp-conductor", "_COMPLETE").get_completions(
        before, begun
    )


@pytest.mark.parametrize("command", ["prompt", "proxy"])
def test_the_first_word_is_a_chain_file_and_the_others_are_texts(command):
    assert [(each.value, each.type) for each in offered(command, "cha")] == [("cha", "file")]
    assert offered(command, "chain.yaml", "say") == []


@pytest.mark.parametrize(
    "words", [["wrap", "--use"], ["install", "zed", "--use"], ["try"], ["components"]]
)
def test_components_are_offered_by_name_and_from_files(words):
    assert [each.value for each in offered(*words, "mcp_")] == ["mcp_servers", "mcp_tools"]
    assert [(each.value, each.type) for each in offered(*words, "./no")] == [("./no", "file")]
