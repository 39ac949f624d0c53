# ruff: noqa: E501 - what is printed is as wide as it is
"""Diagnostics about several keys or several files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Problems: TypeAlias = Callable[..., str]


def test_a_missing_version_is_an_error(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        agent:
          run: [agent]
        """)
        == """
chain.yaml:1:1: error: the key `version` is missing
   | agent:
   | ^^^^^
help: this conductor reads files that begin with `version: 1`
"""
    )


def test_an_unknown_version_is_the_only_error(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 2
        agnet: {}
        """)
        == """
chain.yaml:1:10: error: this version of the chain file format is not known
   | version: 2
   |          ^
help: this conductor reads files that begin with `version: 1`
"""
    )


def test_a_chain_of_nothing_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        name: nothing
        """)
        == """
chain.yaml:1:1: error: the chain is empty: it has neither `proxies` nor an `agent`
   | version: 1
   | ^^^^^^^^^^
help: the smallest chain file is
      version: 1
      agent:
        run: [my-agent]
"""
    )


def test_all_problems_of_a_file_come_at_once_and_in_its_order(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: context
          start_timeout: 10
          isolated: true
        - run: notes --db
        agent:
          run: [agent]
          env: {TOKEN: "${TOKEN}"}
        """)
        == """
chain.yaml:4:18: error: start_timeout: expected a duration such as `500ms`, `10s` or `2m`, found `10`
   |   start_timeout: 10
   |                  ^^
chain.yaml:5:3: error: unknown key `isolated`
   |   isolated: true
   |   ^^^^^^^^
help: did you mean `isolate`?
chain.yaml:6:8: error: run: expected a list, found `notes --db`
   | - run: notes --db
   |        ^^^^^^^^^^
help: write a list: `[notes, --db]`
chain.yaml:9:17: error: the environment variable `TOKEN` is not set
   |   env: {TOKEN: "${TOKEN}"}
   |                 ^^^^^^^^
help: set it, or give it a default: `${TOKEN:-…}`
"""
    )


def test_a_missing_nested_file_is_shown_where_it_is_named(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - chain: tools.yaml
        """)
        == """
chain.yaml:3:10: error: there is no such file
   | - chain: tools.yaml
   |          ^^^^^^^^^^
help: a relative path begins at the file that it stands in
"""
    )


def test_the_problems_of_a_nested_file_are_shown_in_that_file(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: sub/tools.yaml
        - usee: x
        """,
            files={
                "sub/tools.yaml": """\
        version: 1
        proxies:
        - use: x
          wiht: {}
        """
            },
        )
        == """
chain.yaml:4:3: error: unknown key `usee`
   | - usee: x
   |   ^^^^
help: did you mean `use`?
sub/tools.yaml:4:3: error: unknown key `wiht`
   |   wiht: {}
   |   ^^^^
help: did you mean `with`?
"""
    )


def test_the_value_of_a_misspelt_key_is_read_as_that_of_the_key_that_is_meant(
    diagnostics: Problems,
) -> None:
    assert (
        diagnostics("""\
        version: 1
        agnet:
          rnu: agent --acp
          restarts: x
        """)
        == """
chain.yaml:2:1: error: unknown key `agnet`
   | agnet:
   | ^^^^^
help: did you mean `agent`?
chain.yaml:3:3: error: unknown key `rnu`
   |   rnu: agent --acp
   |   ^^^
help: did you mean `run`?
chain.yaml:3:8: error: agnet.rnu: expected a list, found `agent --acp`
   |   rnu: agent --acp
   |        ^^^^^^^^^^^
help: write a list: `[agent, --acp]`
chain.yaml:4:13: error: agnet.restarts: expected a budget such as `3 in 60s`, found `x`
   |   restarts: x
   |             ^
"""
    )


def test_the_problems_of_a_file_that_is_nested_twice_are_shown_once(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: tools.yaml
        - chain: ./tools.yaml
        """,
            files={
                "tools.yaml": """\
        version: 1
        proxies: 3
        """
            },
        )
        == """
tools.yaml:2:10: error: proxies: expected a list, found `3`
   | proxies: 3
   |          ^
"""
    )


def test_a_chain_that_contains_itself_through_others_is_refused_with_the_circle(
    diagnostics: Problems,
) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: b.yaml
        """,
            files={
                "b.yaml": """\
        version: 1
        proxies:
        - use: x
        - chain: c.yaml
        """,
                "c.yaml": """\
        version: 1
        proxies:
        - chain: chain.yaml
        """,
            },
        )
        == """
c.yaml:3:10: error: a chain contains itself: chain.yaml → b.yaml → c.yaml → chain.yaml
   | - chain: chain.yaml
   |          ^^^^^^^^^^
"""
    )


def test_a_chain_with_an_agent_cannot_be_a_proxy(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: tools.yaml
        """,
            files={
                "tools.yaml": """\
        version: 1
        agent:
          run: [agent]
        """
            },
        )
        == """
chain.yaml:3:10: error: this chain has an agent of its own, so it cannot be a proxy
   | - chain: tools.yaml
   |          ^^^^^^^^^^
tools.yaml:3:3: note: its agent
   |   run: [agent]
   |   ^^^^^^^^^^^^
help: name it as the `agent:`, or take the agent out of it
"""
    )


def test_a_chain_without_an_agent_cannot_be_the_agent(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        agent:
          chain: tools.yaml
        """,
            files={
                "tools.yaml": """\
        version: 1
        proxies:
        - use: x
        """
            },
        )
        == """
chain.yaml:3:10: error: this chain has no agent, so it cannot be one
   |   chain: tools.yaml
   |          ^^^^^^^^^^
help: name it among the `proxies`, or give it an `agent:`
"""
    )


def test_two_components_of_the_same_name_are_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          name: a
        agent:
          run: [agent]
          name: a
        """)
        == """
chain.yaml:7:9: error: two components have the same name
   |   name: a
   |         ^
chain.yaml:4:9: note: first given here
   |   name: a
   |         ^
"""
    )


def test_the_sixty_fifth_proxy_is_refused_nested_ones_included(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: many.yaml
        - use: one
        - use: more
        agent:
          run: [agent]
        """,
            files={"many.yaml": "version: 1\nproxies: [" + ", ".join(["{use: x}"] * 63) + "]\n"},
        )
        == """
chain.yaml:5:3: error: a chain has at most 64 proxies, those of nested chains included
   | - use: more
   |   ^^^^^^^^^
"""
    )


def test_chains_nest_sixteen_deep_and_no_deeper(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: c1.yaml
        """,
            files={
                f"c{depth}.yaml": f"version: 1\nproxies:\n- chain: c{depth + 1}.yaml\n"
                for depth in range(1, 17)
            },
        )
        == """
c15.yaml:3:10: error: chains nest more than 16 deep
   | - chain: c16.yaml
   |          ^^^^^^^^
"""
    )
