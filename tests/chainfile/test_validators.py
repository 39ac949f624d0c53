# ruff: noqa: E501 - what is printed is as wide as it is
"""Diagnostics of single values: headers, URLs, names, durations, sizes, choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Problems: TypeAlias = Callable[..., str]


def test_a_header_has_a_valid_name_and_value(diagnostics: Problems) -> None:
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
chain.yaml:8:14: error: tls.key: `key` needs a certificate
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
help: name the class of the file: `./approve.py:Class`
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


def test_the_error_of_a_choice_lists_the_allowed_values(diagnostics: Problems) -> None:
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
chain.yaml:6:12: error: dialect: expected one of `proxy`, `_proxy`, `_meta`, found `__proxy`
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


def test_options_that_are_not_indented_are_named(diagnostics: Problems) -> None:
    found = diagnostics("""\
        version: 1
        proxies:
        - use: context
          with:
          text: x
        """)

    assert "4:3: error: with: expected a mapping, found nothing" in found
    assert "help: indent what belongs to it deeper; an empty mapping is `{}`" in found


def test_the_value_of_a_misspelt_key_is_read_but_not_judged(diagnostics: Problems) -> None:
    found = diagnostics("""
        version: 1
        agent:
          run: agent
          start_timeot: 0s
        """)

    assert found.count("error:") == 1
    assert "unknown key `start_timeot`" in found
