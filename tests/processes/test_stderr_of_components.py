"""Stderr of components: logged under their names, never blocking them."""

import json

import pytest
from support.peers.process import agent, peak, probe, proxy, words

MEBIBYTE = 1 << 20


def lines_of(editor, component):
    """What was logged of a component's stderr, with `--log-format json`."""
    events = [json.loads(line) for line in editor.log]
    return [
        event["line"]
        for event in events
        if event["event"] == "stderr" and event["component"] == component
    ]


def test_a_flood_of_stderr_uses_bounded_memory(start):
    editor = start("--log", "error", "agent", *words(proxy("p"), probe()))
    editor.open()
    before = peak(editor.pid)

    assert editor.ask(f"shout {256 * MEBIBYTE}") == "p>[p]shouting"
    shouting = editor.components[-1]
    while shouting.num_threads() > 1:  # it goes on answering, all the time
        assert editor.ask("echo hello") == "p>[p]hello"

    assert peak(editor.pid) - before < 16 * MEBIBYTE
    assert editor.leave() == 0


def test_a_flood_at_the_start_does_not_delay_it_for_ever(start_agent):
    editor = start_agent(agent("--stderr-bytes", 50 * MEBIBYTE))
    editor.open()

    assert editor.leave() == 0
    assert sum(map(len, editor.log)) < 2 * MEBIBYTE  # the log has a rate limit
    assert any("stderr rate limit exceeded" in line for line in editor.log)


@pytest.mark.fast
def test_lines_are_logged_under_the_name_of_the_component(start):
    editor = start("--log-format", "json", "agent", *words(proxy("p"), probe()))
    editor.open()
    assert editor.ask("errors one\\n\\x1b[31mtwo\\x1b[0m\\r\\nthree") == "p>[p]ok"

    assert editor.leave() == 0
    assert lines_of(editor, "probe_agent") == ["one", "two", "three"]
    assert lines_of(editor, "pass_proxy") == []


def test_a_line_that_comes_in_pieces_is_one_line(start):
    editor = start("--log-format", "json", "agent", *words(probe()))
    editor.open()
    assert editor.ask("errors be") == "ok"
    assert editor.ask("errors gin\\n") == "ok"

    assert editor.leave() == 0
    assert lines_of(editor, "probe_agent") == ["begin"]


def test_invalid_utf_8_on_stderr_is_logged_with_replacement_characters(start):
    noise = ["/bin/sh", "-c", r'printf "a\377b\n\000c\n" >&2; exec "$@"', "sh", *agent()]
    editor = start("--log-format", "json", "agent", *words(noise))
    editor.open()

    assert editor.leave() == 0
    assert lines_of(editor, "sh") == ["a\\xffb", " c"]
