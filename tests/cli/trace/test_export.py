"""`acp-conductor trace export`."""

from __future__ import annotations

import json
import stat

import pytest
from click.testing import CliRunner
from support.trace_records import TraceScript

from conductor.cli.trace.command import command


@pytest.fixture
def trace(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "one")
    script.log("info", "noted", component="notes")
    script.update("agent>notes", "two", session="other")
    return script.write(tmp_path / "t.jsonl")


def export(*arguments):
    return CliRunner().invoke(command, ["export", *map(str, arguments)])


def test_without_criteria_every_line_is_written_as_it_is(trace):
    with trace.open("ab") as file:
        file.write(b'\n{"type":"stderr", "component":"a", "text":"1e400", "ts":9}\n{"type":"part')

    result = export(trace, "--jsonl")

    whole = [line for line in trace.read_bytes().splitlines(keepends=True) if line != b"\n"][:-1]
    assert result.stdout_bytes == b"".join(whole)


def test_a_part_is_a_trace_again(trace, tmp_path):
    result = export(trace, "--jsonl", "--session", "other", "-o", tmp_path / "part")

    assert result.exit_code == 0
    kinds = [json.loads(line)["type"] for line in (tmp_path / "part").read_text().splitlines()]
    assert kinds == ["trace", "notification"]
    assert stat.S_IMODE((tmp_path / "part").stat().st_mode) == 0o600


def test_a_page_has_the_chosen_records(trace, tmp_path):
    result = export(trace, "--html", "--session", "other", "-o", tmp_path / "t.html")

    page = (tmp_path / "t.html").read_text()
    assert result.exit_code == 0
    assert page.startswith("<!doctype html>")
    assert '"text":"two"' in page
    assert '"text":"one"' not in page


def test_the_trace_itself_is_not_overwritten(trace):
    before = trace.read_bytes()

    result = export(trace, "--jsonl", "-o", trace)

    assert result.exit_code == 2
    assert "is the trace file itself" in result.output
    assert trace.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give a format: --html or --jsonl"),
        (["--jsonl", "-o", "/missing/file"], "--output /missing/file: No such file or directory"),
    ],
)
def test_a_mistake_is_a_usage_error(trace, arguments, text):
    result = export(trace, *arguments)

    assert result.exit_code == 2
    assert text in result.output


def test_an_export_that_fails_leaves_the_older_file(trace, tmp_path):
    target = tmp_path / "t.html"
    target.write_text("older")
    with trace.open("ab") as file:
        file.write(b"[1]\n")

    result = export(trace, "--html", "-o", target)

    assert result.exit_code == 2
    assert "not a record of a trace" in result.output
    assert target.read_text() == "older"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.html", "t.jsonl"]
