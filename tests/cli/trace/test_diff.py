"""`acp-conductor trace diff`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from support.peers.process import ROOT
from support.trace_records import TraceScript

from conductor.cli.trace.command import command


def diff(tmp_path, old, new, *options):
    paths = [str(each.write(tmp_path / name)) for name, each in (("a", old), ("b", new))]
    result = CliRunner().invoke(command, ["diff", *paths, *options])
    return result.exit_code, result.output.splitlines()


def updates(*texts):
    script = TraceScript("client", "agent")
    for text in texts:
        script.update("agent>client", text)
    return script


def test_equal_runs_end_with_exit_code_0(tmp_path):
    code, lines = diff(tmp_path, updates("a", "b"), updates("a", "b"))

    assert (code, lines) == (0, ["2 messages equal, 0 changed, 0 only in A, 0 only in B"])


def test_differences_are_shown_and_end_with_exit_code_1(tmp_path):
    code, lines = diff(tmp_path, updates("a", "b", "c", "d"), updates("a", "B", "c", "d", "e"))

    assert code == 1
    assert lines == [
        "agent → client",
        '  #2, in B #2: agent_message_chunk  "B"',
        '      - update.content.text: "b"',
        '      + update.content.text: "B"',
        '+ #5 agent_message_chunk  "e"',
        "3 messages equal, 1 changed, 0 only in A, 1 only in B",
    ]


def test_many_differences_are_counted(tmp_path):
    _, lines = diff(tmp_path, updates(*"abc"), updates(), "--max", "1")

    assert lines[1:3] == ['- #1 agent_message_chunk  "a"', "and 2 more differences (--max)"]


def test_control_characters_of_peers_are_not_written(tmp_path):
    hostile = "\x1b]0;owned\x07\u202e\n"
    old, new = updates(hostile, "x"), updates(hostile + "y", hostile)
    new.notify("client>agent", hostile, {hostile: hostile})

    code, lines = diff(tmp_path, old, new)

    assert code == 1
    assert all(line.isprintable() for line in lines)


@pytest.mark.slow
def test_two_real_runs_are_equal_and_one_of_another_prompt_is_not(run, tmp_path):
    for name, text in (("a", "say hello"), ("b", "say hello"), ("c", "say goodbye")):
        run("prompt", "--trace", name, ROOT / "chains" / "hello.yaml", text)

    same, other = (run("trace", "diff", "a", name) for name in ("b", "c"))

    assert (same.returncode, other.returncode) == (0, 1)
    assert '- update.content.text: "hello"' in other.stdout
