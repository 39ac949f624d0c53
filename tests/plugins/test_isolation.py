"""Messages between the conductor and the process of an isolated plugin."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conductor.chainfile import load
from conductor.chainfile.model import ComponentSpec
from conductor.errors import withhold_details
from conductor.plugins.isolation import (
    PluginInfo,
    as_isolated_process,
    parse_bootstrap_line,
    parse_plugin_info,
    plugin_info,
)
from conductor.proxy import Proxy
from conductor.transport.local_command import isolated_program

TEXT = """version: 1
proxies:
  - use: ./plugin.py:Mine
    isolate: true
    with: {words: [a, "${WORD}"], none: null}
    env: {LEVEL: debug}
    secrets: [LEVEL]
    stop_timeout: 2s
    required: true
"""
ALONE = ComponentSpec(name="usage", use="usage", isolate=True, inherit_env=False, env={"A": "1"})


def spec_of(tmp_path):
    (tmp_path / "chain.yaml").write_text(TEXT)
    (spec,) = load(tmp_path / "chain.yaml", environ={"WORD": "half \N{SNOWMAN}"}).proxies
    return spec


def test_settings_of_the_chain_file_reach_the_process(tmp_path):
    spec = spec_of(tmp_path)

    process = as_isolated_process(spec, "proxy")
    read, role, withheld = parse_bootstrap_line(process.stdin_head)

    same = ("name", "use", "options", "env", "secrets", "directory", "start_timeout")
    same += ("stop_timeout", "required", "location", "locations", "key_locations", "written")
    assert {k: getattr(read, k) for k in same} == {k: getattr(spec, k) for k in same}
    assert (role, withheld, process.required) == ("proxy", False, True)
    assert process.stdin_head.count(b"\n") == 1


def test_options_and_secrets_are_in_no_argument_and_no_environment(tmp_path):
    process = as_isolated_process(spec_of(tmp_path), "proxy")

    assert process.run is not None
    assert "half" not in " ".join(process.run) + repr(process.env)


def test_errors_for_remote_clients_keep_their_details_there_too(tmp_path):
    with withhold_details():
        process = as_isolated_process(spec_of(tmp_path), "proxy")

    assert parse_bootstrap_line(process.stdin_head)[2] is True


def test_a_program_may_give_python_values():
    spec = ComponentSpec("c", use="x", options={"path": Path("/a"), "count": 1, "flag": True})

    assert parse_bootstrap_line(as_isolated_process(spec, "agent").stdin_head)[0].options == {
        "path": "/a",
        "count": 1,
        "flag": True,
    }


class Needed(Proxy):
    required = True


@pytest.mark.parametrize(
    ("params", "required"),
    [(b'{"required":false}', False), (b'{"required":true}', True), (b"{}", True), (b"[]", True)],
)
def test_a_component_is_required_unless_it_says_otherwise(params, required):
    assert parse_plugin_info(params) == PluginInfo(required)
    assert plugin_info(Needed())[1] == {"required": True}


def test_a_plugin_without_the_environment_still_has_the_path():
    assert isolated_program(ALONE).environment(os.environ) == {
        "A": "1",
        "PATH": os.environ["PATH"],
    }


def test_the_chain_starts_the_same_program():
    program, component = isolated_program(ALONE), as_isolated_process(ALONE, "proxy")

    assert (program.run, program.env) == (component.run, component.env)
    assert component.use is None
