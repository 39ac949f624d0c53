"""Warnings about the order of proxies, with what the ready-made ones say about their places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conductor.chainfile import SourceLocation, load
from conductor.cli.plugin_checks import PlacedProxy, order_warnings
from tests.support.plugins import load_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "proxies.md").read_text()
EXAMPLES = dict(re.findall(r"^## (\w+)\n.*?^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
ORDER = PAGE.partition("**Order.**")[2].partition(". `normalize` and `path_map` come late")[0]
"""The good order."""
TABLE = PAGE.partition("| before, nearer to the client |")[2].partition("\n\n")[0]
"""The orders that do harm."""


@pytest.fixture
def placed(tmp_path):
    """A proxy with the options of its example in the docs, at a line of a file."""
    path = tmp_path / "chain.yaml"

    def placed(use, line=1, *, file="chain.yaml", example=None):
        entry = "".join(f"  {each}\n" for each in (example or EXAMPLES[use]).splitlines())
        path.write_text(f"version: 1\nproxies:\n{entry}agent: {{use: test-agent}}\n")
        [spec] = load(path, environ={"DOCS_TOKEN": "x"}).proxies
        plugin = load_plugin(spec)
        location = SourceLocation(file, line, 5, 9, f"  - use: {use}")
        return PlacedProxy(spec.name, type(plugin).__name__, location, plugin.placement())

    return placed


def pairs(chain):
    """The two proxies of each warning, the one nearer to the client first."""
    found = [
        re.fullmatch(r"(\w+): it stands after `(\w+)`.*", warning.message)
        for warning in order_warnings(chain)
    ]
    return {(each[2], each[1]) for each in found}


def test_the_order_of_the_docs_has_no_warning_and_reversed_those_of_the_table(placed):
    chain = [placed(name) for name in re.findall(r"`(\w+)`", ORDER)]
    rows = [row.split("|")[1:3] for row in TABLE.splitlines() if row.startswith("| `")]
    harmful = {
        (first, second)
        for before, behind in rows
        for first in re.findall(r"`(\w+)`", before)
        for second in re.findall(r"`(\w+)`", behind)
        if second != "turn_end"
    }

    assert len(chain) > 20
    assert pairs(chain) == set()
    assert len(harmful) == 13
    assert pairs(chain[::-1]) == harmful


def test_a_warning_has_both_places_and_the_order_to_write(placed):
    redact, context = placed("redact", 3), placed("context", 4)

    [warning] = order_warnings([redact, context])

    assert str(warning).splitlines() == [
        "chain.yaml:4:5: warning: context: it stands after `redact`, nearer to the agent: "
        "secrets in the texts that it adds reach the agent",
        "   |   - use: context",
        "   |     ^^^^",
        "chain.yaml:3:5: note: `redact` is here",
        "   |   - use: redact",
        "   |     ^^^^",
        "help: write `context` before `redact`",
    ]


def test_of_two_files_which_are_merged_in_a_fixed_order_one_needs_the_proxy_too(placed):
    redact, context = placed("redact"), placed("context", file="project.yaml")
    failover, permissions = placed("failover"), placed("permissions", file="project.yaml")

    [added] = order_warnings([redact, context])
    [unseen] = order_warnings([failover, permissions])

    assert added.help == "add `redact` after `context` in project.yaml"
    assert unseen.help == "add `permissions` before `failover` in chain.yaml"


def test_a_second_one_on_the_right_side_is_enough(placed):
    redact, context, failover = placed("redact"), placed("context"), placed("failover")

    assert pairs([redact, context, redact]) == set()
    assert pairs([redact, failover, redact]) == set()
    assert pairs([context, redact, context]) == {("redact", "context")}


def test_of_several_of_a_kind_the_one_next_to_it_is_named(placed):
    added = [placed("redact", 3), placed("redact", 4), placed("context", 5)]
    unseen = [placed("failover", 3), placed("budget", 4), placed("budget", 5)]

    assert [warning.note[0].line for warning in order_warnings(added)] == [4]
    assert [warning.location.line for warning in order_warnings(unseen)] == [4]


def test_hooks_that_continue_no_turn_add_no_text(placed):
    hook = "- use: hooks\n  with: {hooks: [{events: [permission], run: [true]}]}\n"

    assert pairs([placed("redact"), placed("hooks")]) == {("redact", "hooks")}
    assert pairs([placed("redact"), placed("hooks", example=hook)]) == set()


def test_instructions_of_the_client_alone_pass_redact(placed):
    own = "- use: system_prompt\n  with: {of_client: true}\n"

    assert pairs([placed("redact"), placed("system_prompt")]) == {("redact", "system_prompt")}
    assert pairs([placed("redact"), placed("system_prompt", example=own)]) == set()
