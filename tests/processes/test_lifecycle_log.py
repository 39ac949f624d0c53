"""What the log says of a chain's life, as text on a terminal and as JSON elsewhere."""

import json
import os
import pty

import pytest
from support.log_lines import without_slow_starts
from support.peers.process import agent, probe, proxy, words


def life(editor):
    """Component and event of the log lines, in order."""
    lines = [json.loads(line) for line in without_slow_starts(editor.log)]
    assert all(each["chain"] == "conductor" and each["timestamp"] for each in lines)
    return [(each["component"], each["event"]) for each in lines]


@pytest.mark.fast
def test_starts_handshakes_and_ends_are_logged_as_json_and_messages_are_not(start):
    editor = start("--log-format", "auto", "agent", *words(proxy("p"), probe()))
    editor.open()
    for _ in range(3):
        assert editor.ask("echo hello") == "p>[p]hello"
    assert editor.leave() == 0

    levels = {json.loads(line)["level"] for line in without_slow_starts(editor.log)}
    assert levels == {"info"}
    told = life(editor)
    names = ["pass_proxy", "probe_agent"]
    assert sorted(told[:2]) == [(name, "component started") for name in names]
    assert told[2:4] == [(name, "component initialized") for name in reversed(names)]
    assert told[4] == ("conductor", "chain initialized")
    assert sorted(told[5:-1]) == [(name, "component ended") for name in names]
    assert told[-1] == ("conductor", "chain ended")


@pytest.mark.fast
def test_the_line_of_a_handshake_has_version_dialect_and_time(start):
    editor = start("--log-format", "json", "agent", *words(proxy("p"), agent()))
    editor.open()
    assert editor.leave() == 0

    events = [json.loads(line) for line in editor.log]
    made = [each for each in events if each["event"] == "component initialized"]
    assert [(each["version"], each.get("dialect")) for each in made] == [(1, None), (1, "proxy")]
    assert all(0 < each["seconds"] < 60 for each in made)


@pytest.mark.fast
def test_a_terminal_gets_text(start):
    controller, terminal = pty.openpty()
    try:
        editor = start("--log-format", "auto", "agent", *words(agent()), stderr=terminal)
        editor.open()
        assert editor.leave() == 0
        assert b"[\x1b[32m\x1b[1minfo" in os.read(controller, 4096)
    finally:
        os.close(controller)
        os.close(terminal)


@pytest.mark.fast
def test_a_variable_of_the_package_of_the_editor_is_a_warning_and_can_be_emptied(
    start, monkeypatch
):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/tmp/.mount_Editor/usr/lib")
    editor = start("--log-format", "json", "agent", "LD_LIBRARY_PATH= " + words(agent())[0])
    editor.open()
    assert editor.leave() == 0

    events = map(json.loads, without_slow_starts(editor.log))
    [warning] = [each for each in events if each["level"] == "warning"]
    assert warning["event"] == "variable of the editor's package"
    assert warning["name"] == "LD_LIBRARY_PATH"
    assert "env: {LD_LIBRARY_PATH: null}" in warning["help"]
