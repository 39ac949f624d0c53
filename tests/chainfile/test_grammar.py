# ruff: noqa: E501 - what is printed is as wide as it is
"""What is wrong with a single component or value, and what is printed about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from conductor.chainfile import ChainFile, load

Problems: TypeAlias = Callable[..., str]


def test_a_component_needs_one_of_five_kinds(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - name: notes
        """)
        == """
chain.yaml:3:3: error: a component needs one of `run`, `use`, `connect`, `unix` and `chain`
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
help: the keys are `max_message_bytes`, `max_open_requests`, `max_batch`, `max_buffered_bytes`, `max_sessions`, `max_mcp_connections`, `max_mcp_sessions`, `max_session_log_bytes`, …
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


@pytest.mark.parametrize("written", ["", "~", "null", "Null", "NULL"])
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


def test_an_environment_has_no_meaning_for_a_connection(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - connect: wss://example.org/acp
          env: {A: b}
        """)
        == """
chain.yaml:4:3: error: `env` has no meaning beside `connect`
   |   env: {A: b}
   |   ^^^
chain.yaml:3:3: note: the component is given here
   | - connect: wss://example.org/acp
   |   ^^^^^^^
"""
    )


def test_what_has_no_meaning_for_a_program_on_another_machine_is_refused(
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


def test_a_header_is_such_as_may_be_sent(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - connect: wss://example.org
          headers:
            Author ization: x
            Acp-Connection-Id: y
            X-Note: "a\\nX: b"
          tls: {key: key.pem}
        """)
        == """
chain.yaml:5:5: error: `Author ization` cannot be the name of a header
   |     Author ization: x
   |     ^^^^^^^^^^^^^^
chain.yaml:6:5: error: the header `Acp-Connection-Id` belongs to the connection and cannot be given
   |     Acp-Connection-Id: y
   |     ^^^^^^^^^^^^^^^^^
chain.yaml:7:13: error: headers.X-Note: the value of a header is one line of ASCII
   |     X-Note: "a\\nX: b"
   |             ^^^^^^^^^
chain.yaml:8:14: error: tls.key: a key is of use with its certificate only
   |   tls: {key: key.pem}
   |              ^^^^^^^
help: add `cert`
"""
    )


def test_a_url_has_a_known_scheme_and_a_host(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - connect: ftp://example.org
        - connect: wss:///acp
        - connect: http://[::1
        - connect: ws://x:99999
        """)
        == """
chain.yaml:3:12: error: connect: expected a URL such as `wss://proxy.example.org/acp`, found `ftp://example.org`
   | - connect: ftp://example.org
   |            ^^^^^^^^^^^^^^^^^
chain.yaml:4:12: error: connect: expected a URL such as `wss://proxy.example.org/acp`, found `wss:///acp`
   | - connect: wss:///acp
   |            ^^^^^^^^^^
chain.yaml:5:12: error: connect: expected a URL such as `wss://proxy.example.org/acp`, found `http://[::1`
   | - connect: http://[::1
   |            ^^^^^^^^^^^
chain.yaml:6:12: error: connect: expected a URL such as `wss://proxy.example.org/acp`, found `ws://x:99999`
   | - connect: ws://x:99999
   |            ^^^^^^^^^^^^
"""
    )


def test_a_file_without_a_class_asks_for_one(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: ./approve.py
        - use: a.b:C
        """)
        == """
chain.yaml:3:8: error: use: expected a name or `path.py:Class`, found `./approve.py`
   | - use: ./approve.py
   |        ^^^^^^^^^^^^
help: name the class of the file: `./file.py:Class`
chain.yaml:4:8: error: use: expected a name or `path.py:Class`, found `a.b:C`
   | - use: a.b:C
   |        ^^^^^
help: name the class of the file: `./file.py:Class`
"""
    )


def test_a_name_has_no_slash(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          name: a/b
        - use: y
          name: ""
        """)
        == """
chain.yaml:4:9: error: name: expected a name without `/`, found `a/b`
   |   name: a/b
   |         ^^^
chain.yaml:6:9: error: name: expected a name without `/`, found ``
   |   name: ""
   |         ^^
"""
    )


def test_an_environment_name_has_no_equals_sign(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run: [a]
          env: {A=B: c}
        """)
        == """
chain.yaml:4:9: error: `A=B` cannot be the name of an environment variable
   |   env: {A=B: c}
   |         ^^^
"""
    )


def test_a_duration_has_a_unit(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          stop_timeout: 10
          stall_timeout: soon
          request_timeout: {session/prompt: 1d}
        """)
        == """
chain.yaml:4:17: error: stop_timeout: expected a duration such as `500ms`, `10s` or `2m`, found `10`
   |   stop_timeout: 10
   |                 ^^
chain.yaml:5:18: error: stall_timeout: expected a duration such as `500ms`, `10s` or `2m`, found `soon`
   |   stall_timeout: soon
   |                  ^^^^
chain.yaml:6:37: error: request_timeout.session/prompt: expected a duration such as `500ms`, `10s` or `2m`, found `1d`
   |   request_timeout: {session/prompt: 1d}
   |                                     ^^
"""
    )


def test_a_timeout_is_more_than_zero(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          start_timeout: 0s
          request_timeout: {session/prompt: 0ms}
        """)
        == """
chain.yaml:4:18: error: start_timeout: must be more than zero
   |   start_timeout: 0s
   |                  ^^
chain.yaml:5:37: error: request_timeout.session/prompt: must be more than zero
   |   request_timeout: {session/prompt: 0ms}
   |                                     ^^^
"""
    )


def test_a_restart_budget_names_a_count_and_a_time(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          restarts: 3
        - use: y
          restarts: 3 in 0s
        """)
        == """
chain.yaml:4:13: error: restarts: expected a budget such as `3 in 60s`, found `3`
   |   restarts: 3
   |             ^
chain.yaml:6:13: error: restarts: expected a budget such as `3 in 60s`, found `3 in 0s`
   |   restarts: 3 in 0s
   |             ^^^^^^^
"""
    )


def test_a_boolean_is_a_word_for_one(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          isolate: 1
        """)
        == """
chain.yaml:4:12: error: isolate: expected `true` or `false`, found `1`
   |   isolate: 1
   |            ^
"""
    )


def test_a_choice_lists_what_can_be_chosen(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: x
          on_failure: restrat
        - use: y
          dialect: __proxy
        """)
        == """
chain.yaml:4:15: error: on_failure: expected one of `restart`, `bypass`, `end_chain`, found `restrat`
   |   on_failure: restrat
   |               ^^^^^^^
help: did you mean `restart`?
chain.yaml:6:12: error: dialect: expected `proxy` or `_proxy`, found `__proxy`
   |   dialect: __proxy
   |            ^^^^^^^
help: did you mean `_proxy`?
"""
    )


def test_an_agent_cannot_be_bypassed(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent:
          run: [a]
          on_failure: bypass
        """)
        == """
chain.yaml:4:15: error: on_failure: expected `restart` or `end_chain`, found `bypass`
   |   on_failure: bypass
   |               ^^^^^^
"""
    )


def test_a_required_component_cannot_be_bypassed(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - use: redact
          required: true
          on_failure: bypass
        """)
        == """
chain.yaml:5:15: error: on_failure: a required component is never bypassed
   |   on_failure: bypass
   |               ^^^^^^
chain.yaml:4:3: note: the chain must not run without this component
   |   required: true
   |   ^^^^^^^^
"""
    )


def test_a_size_is_a_number_with_a_unit(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: {run: [a]}
        limits:
          max_message_bytes: much
        """)
        == """
chain.yaml:4:22: error: limits.max_message_bytes: expected a size such as `65536`, `64KiB` or `10MB`, found `much`
   |   max_message_bytes: much
   |                      ^^^^
"""
    )


def test_a_bridge_is_one_of_four(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent: {run: [a]}
        mcp_bridge: sse
        """)
        == """
chain.yaml:3:13: error: mcp_bridge: expected one of `auto`, `stdio`, `http`, `off`, found `sse`
   | mcp_bridge: sse
   |             ^^^
"""
    )


def test_a_mapping_where_a_list_belongs_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
          use: context
        """)
        == """
chain.yaml:3:3: error: proxies: expected a list, found a mapping
   |   use: context
   |   ^^^^^^^^^^^^
"""
    )


def test_a_kind_without_a_value_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        - run:
        - use: ~
        """)
        == """
chain.yaml:3:3: error: run: expected a value, found nothing
   | - run:
   |   ^^^
chain.yaml:4:8: error: use: expected a value, found nothing
   | - use: ~
   |        ^
"""
    )


def test_an_agent_without_a_value_is_refused(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        agent:
        """)
        == """
chain.yaml:2:1: error: agent: expected a component, found nothing
   | agent:
   | ^^^^^
help: without the key, the file is a proxy chain
"""
    )


def test_a_list_without_items_is_nothing(diagnostics: Problems) -> None:
    assert (
        diagnostics("""\
        version: 1
        proxies:
        # - use: context
        """)
        == """
chain.yaml:2:1: error: proxies: expected a list, found nothing
   | proxies:
   | ^^^^^^^
help: for an empty list write `[]`
"""
    )
