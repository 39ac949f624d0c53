# ruff: noqa: E501 - what is printed is as wide as it is
"""References to the environment: expansion and diagnostics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from conductor.chainfile import ChainFile
from conductor.chainfile.document import expand

Problems: TypeAlias = Callable[..., str]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${A}", "1"),
        ("x${A}y${A}", "x1y1"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${A:-d}", "1"),
        ("${NONE:-d e}", "d e"),
        ("${NONE:-}", ""),
        ("$${A}", "${A}"),
        ("$$", "$"),
        ("$A $ 5$", "$A $ 5$"),
    ],
)
def test_a_reference_is_replaced_as_a_shell_would(written: str, meant: str) -> None:
    expanded = expand(written, {"A": "1", "EMPTY": ""})
    assert (expanded.text, expanded.bad) == (meant, ())


def test_a_value_is_not_expanded_again(chain: Callable[..., ChainFile]) -> None:
    text = "version: 1\nagent: {run: [a, '${A}']}\n"
    agent = chain(text, environ={"A": "${B} *x [y]"}).agent
    assert agent is not None
    assert agent.run == ("a", "${B} *x [y]")


def test_a_default_that_is_empty_is_text_and_not_null(chain: Callable[..., ChainFile]) -> None:
    agent = chain("version: 1\nagent: {run: [a], env: {X: '${NONE:-}'}}\n").agent
    assert agent is not None
    assert agent.env == {"X": ""}


def test_the_written_text_is_kept_beside_the_expanded_value(
    chain: Callable[..., ChainFile],
) -> None:
    agent = chain("version: 1\nagent: {run: [a, 'key=${KEY}']}\n", environ={"KEY": "s3cr3t"}).agent
    assert agent is not None
    assert agent.run == ("a", "key=s3cr3t")
    assert agent.written["run", 1].text == "key=${KEY}"
    assert "s3cr3t" not in repr(agent) + repr(agent.written)


def test_an_unset_variable_is_shown_at_its_reference(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        agent:
          run: [agent, --key, "a ${HOME} ${AGENT_KEY} b"]
        """,
            environ={"HOME": "/home/x"},
        )
        == """
chain.yaml:3:34: error: the environment variable `AGENT_KEY` is not set
   |   run: [agent, --key, "a ${HOME} ${AGENT_KEY} b"]
   |                                  ^^^^^^^^^^^^
help: set it, or give it a default: `${AGENT_KEY:-…}`
"""
    )


def test_an_unset_variable_may_be_a_misspelt_one(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        agent:
          run: [agent, "${NOTES_DBB}"]
        """,
            environ={"NOTES_DB": "x"},
        )
        == """
chain.yaml:3:17: error: the environment variable `NOTES_DBB` is not set
   |   run: [agent, "${NOTES_DBB}"]
   |                 ^^^^^^^^^^^^
help: did you mean `NOTES_DB`? Otherwise set it, or give it a default: `${NOTES_DBB:-…}`
"""
    )


def test_values_of_variables_are_never_printed(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - use: x
          start_timeout: ${TOKEN}
          on_failure: ${TOKEN}
          isolate: x${TOKEN}
        - connect: ${TOKEN}://x
        - run: a ${TOKEN}
        - use: ${TOKEN}.py
          name: /${TOKEN}
        - chain: ${TOKEN}
        """,
            environ={"TOKEN": "s3cr3t"},
        )
        == """
chain.yaml:4:18: error: start_timeout: expected a duration such as `500ms`, `10s` or `2m`, found `${TOKEN}`
   |   start_timeout: ${TOKEN}
   |                  ^^^^^^^^
chain.yaml:5:15: error: on_failure: expected one of `restart`, `bypass`, `end_chain`, found `${TOKEN}`
   |   on_failure: ${TOKEN}
   |               ^^^^^^^^
chain.yaml:6:12: error: isolate: expected `true` or `false`, found `x${TOKEN}`
   |   isolate: x${TOKEN}
   |            ^^^^^^^^^
chain.yaml:7:12: error: connect: expected a URL such as `wss://proxy.example.org/acp`, found `${TOKEN}://x`
   | - connect: ${TOKEN}://x
   |            ^^^^^^^^^^^^
chain.yaml:8:8: error: run: expected a list, found `a ${TOKEN}`
   | - run: a ${TOKEN}
   |        ^^^^^^^^^^
help: write a list: `[a, "${TOKEN}"]`
chain.yaml:9:8: error: use: expected a name or `path.py:Class`, found `${TOKEN}.py`
   | - use: ${TOKEN}.py
   |        ^^^^^^^^^^^
help: name the class of the file: `${TOKEN}.py:Class`
chain.yaml:10:9: error: name: expected a name without `/`, found `/${TOKEN}`
   |   name: /${TOKEN}
   |         ^^^^^^^^^
chain.yaml:11:10: error: there is no such file
   | - chain: ${TOKEN}
   |          ^^^^^^^^
help: a relative path begins at the file that it stands in
"""
    )
