# ruff: noqa: E501 - what is printed is as wide as it is
"""Diagnostics of a component: its kind, its command, and the keys that its kind allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from conductor.chainfile import ChainFile, load

Problems: TypeAlias = Callable[..., str]


def test_a_component_needs_one_of_six_kinds(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - name: notes
        """)
        == """
chain.yaml:3:3: error: a component needs one of `run`, `use`, `registry`, `connect`, `unix` and `chain`
   | - name: notes
   |   ^^^^^^^^^^^
"""
    )


def test_a_component_is_of_one_kind_only(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [notes]
          use: notes
        """)
        == """
chain.yaml:4:3: error: `run` and `use` exclude each other
   |   use: notes
   |   ^^^
chain.yaml:3:3: note: the component is given here already
   | - run: [notes]
   |   ^^^
"""
    )


def test_a_component_is_not_a_word(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - context
        """)
        == """
chain.yaml:3:3: error: expected a component, found `context`
   | - context
   |   ^^^^^^^
help: write `use: …` or `run: […]`
"""
    )


def test_an_unknown_key_is_corrected(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: context
          start-timeout: 10s
        """)
        == """
chain.yaml:4:3: error: unknown key `start-timeout`
   |   start-timeout: 10s
   |   ^^^^^^^^^^^^^
help: did you mean `start_timeout`?
"""
    )


def test_an_unknown_key_that_resembles_none_lists_some(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: {run: [a]}
        limits: {xyzzy: 3}
        """)
        == """
chain.yaml:3:10: error: unknown key `xyzzy`
   | limits: {xyzzy: 3}
   |          ^^^^^
help: the keys are `max_message_bytes`, `max_open_requests`, `max_buffered_bytes`, `max_sessions`, `max_mcp_connections`, `max_session_log_bytes`, `max_initialize_bytes`
"""
    )


def test_a_misspelt_kind_is_one_problem(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - command: [notes]
        """)
        == """
chain.yaml:3:3: error: unknown key `command`
   | - command: [notes]
   |   ^^^^^^^
help: did you mean `run`?
"""
    )


def test_another_machine_alone_is_no_component(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - ssh: user@host
        """)
        == """
chain.yaml:3:3: error: `ssh` says where, not what to run
   | - ssh: user@host
   |   ^^^
help: add the command: `run: […]`
"""
    )


def test_a_command_that_is_a_string_shows_the_list_form(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent:
          run: npx -y "my agent" --acp=${MODE:-on}
        """)
        == """
chain.yaml:3:8: error: run: expected a list, found `npx -y "my agent" --acp=${MODE:-on}`
   |   run: npx -y "my agent" --acp=${MODE:-on}
   |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write a list: `[npx, -y, "my agent", "--acp=${MODE:-on}"]`
"""
    )


def test_one_word_is_a_command_without_arguments(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nagent:\n  run: claude-agent-acp\n")
    agent = load(file).agent
    assert agent is not None
    assert agent.run == ("claude-agent-acp",)


def test_an_empty_command_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: []
        - run: [""]
        """)
        == """
chain.yaml:3:8: error: run: the command is empty
   | - run: []
   |        ^^
chain.yaml:4:9: error: run[0]: the command is empty
   | - run: [""]
   |         ^^
"""
    )


@pytest.mark.parametrize("written", ["", "~", "NULL"])
def test_an_unquoted_null_is_none(chain: Callable[..., ChainFile], written: str) -> None:
    read = chain(f"""\
version: 1
agent:
  use: test-agent
  with: {{option: {written}}}
""")
    assert read.agent is not None
    assert read.agent.options == {"option": None}


def test_a_null_in_a_command_asks_for_quotes(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [notes, null]
        """)
        == """
chain.yaml:3:16: error: run[1]: expected text, found nothing
   | - run: [notes, null]
   |                ^^^^
help: if the word itself is meant, write it in quotes: `"null"`
"""
    )


def test_options_have_no_meaning_for_a_program(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [notes]
          with: {db: x}
        """)
        == """
chain.yaml:4:3: error: `with` has no meaning beside `run`
   |   with: {db: x}
   |   ^^^^
chain.yaml:3:3: note: the component is given here
   | - run: [notes]
   |   ^^^
"""
    )


def test_a_nested_chain_takes_no_settings(diagnostics: Problems) -> None:
    assert (
        diagnostics(
            """\
        version: 1
        proxies:
        - chain: tools.yaml
          env: {A: b}
        """,
            files={
                "tools.yaml": """\
        version: 1
        proxies: []
        """
            },
        )
        == """
chain.yaml:4:3: error: `env` has no meaning beside `chain`
   |   env: {A: b}
   |   ^^^
chain.yaml:3:3: note: the component is given here
   | - chain: tools.yaml
   |   ^^^^^
help: a nested chain takes its settings from its own file
"""
    )


def test_keys_without_meaning_for_an_ssh_program_are_refused(
    diagnostics: Problems,
) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [notes]
          ssh: user@host
          inherit_env: no
        """)
        == """
chain.yaml:5:3: error: `inherit_env` has no meaning beside `ssh`
   |   inherit_env: no
   |   ^^^^^^^^^^^
chain.yaml:4:3: note: the component is given here
   |   ssh: user@host
   |   ^^^
help: the program gets the environment of the other machine, and of `env` what its sshd accepts
"""
    )


def test_headers_and_tls_are_for_connections_that_have_them(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [notes]
          headers: {A: b}
        - unix: /run/notes.sock
          tls: {verify: no}
        - connect: ws://127.0.0.1:8765
          tls: {ca: ca.pem}
        """)
        == """
chain.yaml:4:3: error: `headers` has no meaning beside `run`
   |   headers: {A: b}
   |   ^^^^^^^
chain.yaml:3:3: note: the component is given here
   | - run: [notes]
   |   ^^^
chain.yaml:6:3: error: `tls` has no meaning beside `unix`
   |   tls: {verify: no}
   |   ^^^
chain.yaml:5:3: note: the component is given here
   | - unix: /run/notes.sock
   |   ^^^^
chain.yaml:8:3: error: `tls` has no meaning for `ws://`
   |   tls: {ca: ca.pem}
   |   ^^^
chain.yaml:7:3: note: this connection is not encrypted
   | - connect: ws://127.0.0.1:8765
   |   ^^^^^^^
help: write `wss://…`
"""
    )


def test_a_sandbox_belongs_to_a_program_on_this_machine(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: context
          sandbox: true
        agent: {ssh: host, run: [agent], sandbox: true}
        """)
        == """
chain.yaml:4:3: error: `sandbox` has no meaning beside `use`
   |   sandbox: true
   |   ^^^^^^^
chain.yaml:3:3: note: the component is given here
   | - use: context
   |   ^^^
chain.yaml:5:34: error: `sandbox` has no meaning beside `ssh`
   | agent: {ssh: host, run: [agent], sandbox: true}
   |                                  ^^^^^^^
chain.yaml:5:9: note: the component is given here
   | agent: {ssh: host, run: [agent], sandbox: true}
   |         ^^^
help: the program gets the environment of the other machine, and of `env` what its sshd accepts
"""
    )


def test_the_mistakes_of_a_sandbox_have_their_places(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [notes]
          sandbox: {workspaces: {src: /src}}
        - run: [other]
          sandbox: {workspaces: [""], writes: [x], network: off-line}
        agent:
          run: [agent]
          sandbox: {workspaces: {src: src, lib: /}}
        """)
        == """
chain.yaml:4:25: error: sandbox.workspaces: only an agent can see a workspace at another path
   |   sandbox: {workspaces: {src: /src}}
   |                         ^^^^^^^^^^^
help: write a list of paths
chain.yaml:6:26: error: sandbox.workspaces[0]: the path is empty
   |   sandbox: {workspaces: [""], writes: [x], network: off-line}
   |                          ^^
chain.yaml:6:31: error: unknown key `writes`
   |   sandbox: {workspaces: [""], writes: [x], network: off-line}
   |                               ^^^^^^
help: did you mean `write`?
chain.yaml:6:53: error: sandbox.network: expected `true` or `false`, found `off-line`
   |   sandbox: {workspaces: [""], writes: [x], network: off-line}
   |                                                     ^^^^^^^^
chain.yaml:9:31: error: sandbox.workspaces.src: expected an absolute path such as `/workspace`, found `src`
   |   sandbox: {workspaces: {src: src, lib: /}}
   |                               ^^^
chain.yaml:9:41: error: sandbox.workspaces.lib: expected an absolute path such as `/workspace`, found `/`
   |   sandbox: {workspaces: {src: src, lib: /}}
   |                                         ^
"""
    )


def test_an_agent_that_is_a_word_is_a_name_of_the_registry(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: claude-agent-acp --verbose
        """)
        == """
chain.yaml:2:8: error: agent: expected a name of the registry such as `claude-acp`, found `claude-agent-acp --verbose`
   | agent: claude-agent-acp --verbose
   |        ^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `acp-conductor registry list` lists the names; a command is written `run: […]`
"""
    )


def test_a_component_of_the_registry_is_a_program_of_this_machine(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        registry: http://example.org/registry.json
        agent:
          registry: claude-acp
          ssh: host
        """)
        == """
chain.yaml:2:11: error: registry: expected a file, or a URL that begins with `https://`, found `http://example.org/registry.json`
   | registry: http://example.org/registry.json
   |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
chain.yaml:5:3: error: `ssh` has no meaning beside `registry`
   |   ssh: host
   |   ^^^
chain.yaml:4:3: note: the component is given here
   |   registry: claude-acp
   |   ^^^^^^^^
"""
    )
