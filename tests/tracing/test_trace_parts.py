"""Which files belong to one trace."""

from __future__ import annotations

import pytest
from support.seen_port import traced_port
from support.trace_records import TraceScript

from conductor.tracing.reader import Trace, trace_parts
from conductor.tracing.records import TraceHeader
from conductor.tracing.trace_file import TraceFile


def write(path, count, max_size=20_000):
    """A run that sends so many updates of 5 kB; a file takes three of them."""
    file = TraceFile(path, max_size=max_size)
    recorder = file.recorder("review")
    recorder.attach([])
    port = traced_port(recorder, "client", "agent")
    for number in range(count):
        port.notify("session/update", b'{"n":%d,"text":"%b"}' % (number, b"x" * 5000))
        file.flush()
    file.close()


def test_full_files_belong_to_the_trace_that_goes_on(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, 8)

    parts = trace_parts(path)
    assert [each.name for each in parts] == ["t.jsonl.2", "t.jsonl.1", "t.jsonl"]
    assert trace_parts(f"{path}.1") == [path.with_name("t.jsonl.1")]
    records = Trace.load(path).records
    assert [each.params["n"] for each in Trace.load(path).messages] == list(range(8))
    assert sum(isinstance(each, TraceHeader) for each in records) == 3


def test_the_file_of_an_earlier_run_does_not_belong_to_it(tmp_path):
    path = tmp_path / "t.jsonl"
    for _ in range(2):
        write(path, 1)

    assert path.with_name("t.jsonl.1").exists()
    assert trace_parts(path) == [path]


def test_a_part_of_a_trace_is_read_alone_beside_the_file_of_another_process(tmp_path):
    script = TraceScript()
    for text in ("first", "second"):
        script.update("agent>notes", text)
    path = script.write(tmp_path / "t.jsonl")
    first, _, second = path.read_text().splitlines(keepends=True)
    path.write_text(first + second)
    write(tmp_path / "other", 1)
    (tmp_path / "other").rename(tmp_path / "t.jsonl.1")

    assert trace_parts(path) == [path]


@pytest.mark.parametrize(
    "text", ["", "no trace", '{"type":"trace","ts":0,"pid":1}\n', "[" * 10_000]
)
def test_a_file_without_messages_is_read_alone(tmp_path, text):
    path = tmp_path / "t.jsonl"
    path.write_text(text)

    assert trace_parts(path) == [path]
    assert trace_parts(tmp_path / "missing") == [tmp_path / "missing"]
