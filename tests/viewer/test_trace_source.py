"""Reading a trace file that grows, its records and searches."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from support.trace_records import TraceScript

from conductor.viewer.trace_source import TraceSource

PATIENCE = 10


def wait_for(source, rows, state="following"):
    end = time.monotonic() + PATIENCE
    while len(source.index.rows) < rows or source.state != state:
        assert time.monotonic() < end, (len(source.index.rows), source.state, source.error)
        time.sleep(0.005)


def lines(script, first=0):
    return b"".join(msgspec.json.encode(each) + b"\n" for each in script.records[first:])


def test_a_record_is_the_line_of_the_file(turn, tmp_path):
    path = turn.write(tmp_path / "t.jsonl")
    with TraceSource(path) as source:
        wait_for(source, len(turn.records))

        assert [source.line(i) for i in range(len(turn.records))] == path.read_bytes().splitlines(
            True
        )
        assert source.line(-1) is None
        assert source.line(len(turn.records)) is None


def test_what_is_added_is_read(turn, tmp_path):
    path = turn.write(tmp_path / "t.jsonl")
    known = len(turn.records)
    with TraceSource(path) as source:
        wait_for(source, known)
        turn.update("agent>notes", "more")
        whole = lines(turn, known)
        with path.open("ab") as file:
            file.write(b"\n" + whole[:20])
            file.flush()
            file.write(whole[20:])

        wait_for(source, known + 1)
        assert source.line(known) == whole


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(turn, tmp_path):
    path = turn.write(tmp_path / "t.jsonl")
    known = len(turn.records)
    with TraceSource(path) as source:
        wait_for(source, known)
        before = path.read_bytes()
        path.rename(tmp_path / "t.jsonl.1")
        path.write_bytes(before)

        wait_for(source, 2 * known)
        assert source.line(0) == source.line(known) == before.splitlines(True)[0]


def test_full_files_of_the_trace_are_read_first(turn, tmp_path):
    turn.records[0].pid = 7
    header, *records = turn.records
    for name, part in (("t.jsonl.1", records[:3]), ("t.jsonl", records[3:])):
        whole = b"".join(msgspec.json.encode(each) + b"\n" for each in (header, *part))
        (tmp_path / name).write_bytes(whole)

    with TraceSource(tmp_path / "t.jsonl") as source:
        wait_for(source, len(records) + 2)
        rows = [*range(1, 4), *range(5, len(records) + 2)]
        assert [source.line(i) for i in rows] == [
            lines(turn, i).split(b"\n")[0] + b"\n" for i in range(1, len(records) + 1)
        ]


def test_a_search_finds_values_and_names_in_any_case(turn, tmp_path):
    with TraceSource(turn.write(tmp_path / "t.jsonl")) as source:
        wait_for(source, len(turn.records))

        assert source.search("BE KIND", 0) == ([2], len(turn.records))
        assert source.search("toolcallid", 0)[0] == [4, 5, 6, 7]
        assert source.search("toolcallid", 5)[0] == [5, 6, 7]


@pytest.mark.parametrize(
    "text", ["GRÜSSE", "grüsse", 'say "yes"', "C:\\temp", "two\nlines", "\u2028"]
)
def test_a_search_reads_escapes_and_all_writings(tmp_path, text):
    script = TraceScript()
    for each in ("Grüße", 'say "Yes"', "c:\\temp", "two\nlines", "\u2028", "other"):
        script.update("agent>notes", each)
    path = script.write(tmp_path / "t.jsonl")
    path.write_bytes(path.read_bytes().replace("\u2028".encode(), b"\\u2028"))
    with TraceSource(path) as source:
        wait_for(source, 7)

        assert len(source.search(text, 0)[0]) == 1


def test_a_line_that_is_no_record_ends_the_reading(turn, tmp_path):
    path = turn.write(tmp_path / "t.jsonl")
    with path.open("ab") as file:
        file.write(b'{"type": "other"}\n')
    with TraceSource(path) as source:
        wait_for(source, len(turn.records), "failed")

        assert f"t.jsonl:{len(turn.records) + 1}: not a record" in source.error
        assert source.line(len(turn.records)) is None


def test_links_are_those_of_all_rows(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "a")
    path = script.write(tmp_path / "t.jsonl")
    with TraceSource(path) as source:
        wait_for(source, 2)
        assert source.links() == []
        script.update("notes>client", "a")
        with path.open("ab") as file:
            file.write(lines(script, 2))
        wait_for(source, 3)

        assert json.loads(source.line(2) or b"")["n"] == 2
        assert source.links() == [(2, 1, "equal payload", 0)]


def test_texts_and_numbers_that_few_programs_can_read_are_shown(tmp_path):
    script = TraceScript()
    script.update("agent>notes", "HALF")
    script.request("client>notes", "HALF", {"sessionId": "HALF", "number": 7})
    script.stderr("HALF", "HALF")
    script.log("info", "HALF", component="HALF", fields={"HALF": "HALF"})
    path = script.write(tmp_path / "t.jsonl")
    deep = b"[" * 400 + b"]" * 400
    lines = (
        path.read_bytes().replace(b"HALF", rb"\ud800x").replace(b'"number":7', b'"number":1e999')
    )
    path.write_bytes(
        lines + lines.splitlines(True)[1].replace(b'"params":{', b'"params":{"a":' + deep + b",")
    )

    with TraceSource(path) as source:
        wait_for(source, 5)

        rows = [json.loads(each) for each in source.index.rows]
        assert {"?x"} < set(source.index.strings)
        assert rows[1][-2] == '"?x"'
        assert source.search("x", 0)[0]
