"""Trace files: what is on disk."""

from __future__ import annotations

import errno
import json
import os
import threading

import pytest
from support.seen_port import traced_port

from conductor.jsonrpc.notification_batch import split_block
from conductor.tracing import trace_file, trace_writer
from conductor.tracing.reader import Trace, read_records
from conductor.tracing.records import LogRecord, LossRecord, TraceHeader
from conductor.tracing.trace_file import TraceFile

PATIENCE = 10


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def begin(file, chain="review"):
    """A traced port of a chain without components."""
    recorder = file.recorder(chain)
    recorder.attach([])
    return traced_port(recorder, "client", "agent")


def update(number, size=10):
    return b'{"sessionId":"s1","update":{"n":%d,"text":"%b"}}' % (number, b"x" * size)


def test_messages_are_written_whole_and_in_order(path):
    file = TraceFile(path)
    port = begin(file)
    for number in range(100):
        port.notify("session/update", update(number, 5000))
    file.close()

    header, *messages = Trace.load(path).records
    assert (header.chain, header.payloads) == ("review", "full")
    assert [each.params["update"]["n"] for each in messages] == list(range(100))
    assert [each.n for each in messages] == list(range(1, 101))
    assert {each.session for each in messages} == {"s1"}
    assert {each.size for each in messages[:10]} == {len(update(0, 5000))}


def test_only_the_user_can_read_the_file(path):
    TraceFile(path).close()

    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_of_an_earlier_run_is_kept(path):
    for text in ("first", "second", "third", "fourth"):
        file = TraceFile(path)
        begin(file, text)
        file.close()

    found = {each.name: Trace.load(each).header.chain for each in path.parent.iterdir()}
    assert found == {
        "trace.jsonl": "fourth",
        "trace.jsonl.1": "third",
        "trace.jsonl.2": "second",
    }


def test_a_file_over_its_size_is_continued_in_another_with_the_headers(path):
    file = TraceFile(path, max_size=40_000)
    port = begin(file)
    for number in range(3):
        port.notify("session/update", update(number, 30_000))
        file.flush()
    file.close()

    older = Trace.load(f"{path}.1")
    newest = tuple(read_records(path.read_bytes().splitlines(keepends=True)))
    assert isinstance(older.records[0], TraceHeader)
    assert newest[0] == older.records[0]
    assert [(each.n, each.params["update"]["n"]) for each in newest[1:]] == [(3, 2)]


@pytest.fixture
def held(monkeypatch):
    """Until this event is set, nothing can be written, and `reached` is set by the first try."""
    held, written = threading.Event(), trace_file.os.write
    held.reached = threading.Event()

    def write(fd, data):
        held.reached.set()
        return held.wait(60) and written(fd, data)

    monkeypatch.setattr(trace_writer, "_MAX_QUEUED", 50_000)
    monkeypatch.setattr(trace_file.os, "write", write)
    return held


def test_what_cannot_be_written_in_time_is_dropped_and_counted(path, held, logged):
    file = TraceFile(path)
    port = begin(file)
    for number in range(10):
        port.notify("session/update", update(number, 10_000))
    held.set()
    file.flush()
    port.notify("session/update", update(10, 10))
    file.close()

    trace = Trace.load(path)
    numbers = [each.params["update"]["n"] for each in trace.messages]
    (loss,) = (each for each in trace.records if isinstance(each, LossRecord))
    assert numbers == [*range(4), 10]
    assert loss.count == 6
    assert trace.records[-1].time == pytest.approx(loss.time, abs=PATIENCE)
    assert trace.records.index(loss) == len(trace.records) - 2
    assert [(event, fields.get("records")) for _, event, fields in logged] == [
        ("trace records dropped: written too slowly", None),
        ("trace records lost: written too slowly", 6),
    ]


def test_a_loss_at_the_end_is_recorded(path, held):
    file = TraceFile(path)
    port = begin(file)
    for number in range(10):
        port.notify("session/update", update(number, 10_000))
    held.set()
    file.close()

    records = Trace.load(path).records
    assert [each.count for each in records if isinstance(each, LossRecord)] == [6]
    assert isinstance(records[-1], LossRecord)


def test_blocks_that_cannot_be_written_in_time_are_dropped_too(path, held):
    head = b'{"jsonrpc":"2.0","method":"session/update","params":'
    lines = b"".join(b"%b%b}\n" % (head, update(number, 5_000)) for number in range(2))
    (block,) = split_block(lines)
    file = TraceFile(path)
    port = begin(file)
    for _ in range(10):
        port.notify_batch(block)
    held.set()
    file.close()

    trace = Trace.load(path)
    assert [each.params["update"]["n"] for each in trace.messages] == [0, 1] * 4
    assert isinstance(trace.records[-1], LossRecord)


def test_the_end_does_not_wait_for_a_reader_that_does_not_read(path, held, logged, monkeypatch):
    monkeypatch.setattr(trace_writer, "_CLOSE_TIMEOUT", 0)
    file = TraceFile(path)
    port = begin(file)  # the entry of the start
    held.reached.wait(PATIENCE)
    for number in range(3):
        port.notify("session/update", update(number))
    file.close()
    held.set()

    assert [(event, fields["records"]) for _, event, fields in logged] == [
        ("trace records lost: written too slowly", 4)
    ]


@pytest.mark.parametrize(
    ("payloads", "small", "head"),
    [("head", {"sessionId": "s1", "update": {"n": 0, "text": ""}}, 512), ("none", None, None)],
)
def test_payloads_can_be_left_out(path, payloads, small, head):
    file = TraceFile(path, payloads)
    port = begin(file)
    port.notify("session/update", update(0, 0))
    port.notify("session/update", update(1, 1000))
    file.close()

    first, second = Trace.load(path).messages
    assert first.params == small
    assert second.params is None
    assert (second.head and len(second.head)) == head
    assert (second.session, second.size) == ("s1", len(update(1, 1000)))


@pytest.fixture
def logged(monkeypatch):
    """The events of the log: level, event, and fields."""
    found = []
    monkeypatch.setattr("conductor.log._listener", lambda *event: found.append(event))
    return found


def test_a_disk_error_ends_the_trace_and_nothing_else(path, monkeypatch, logged):
    file = TraceFile(path)
    port = begin(file)
    monkeypatch.setattr(trace_file.os, "write", failing_write)
    port.notify("session/update", update(0))
    file.close()
    port.notify("session/update", update(1))

    (event,) = logged
    assert event[:2] == ("error", "trace ended")
    assert "Input/output error" in event[2]["error"]


def failing_write(fd, data):
    raise OSError(errno.EIO, "Input/output error")


def test_a_file_that_another_conductor_writes_is_left_to_it(path, logged):
    first, second = TraceFile(path), TraceFile(path)
    begin(first, "first")
    begin(second, "second")
    first.close()
    second.close()

    own = path.with_name(f"trace-{os.getpid()}.jsonl")
    assert second.path == own
    assert (Trace.load(path).header.chain, Trace.load(own).header.chain) == ("first", "second")
    assert logged[0][1] == "another conductor writes this trace"


def test_a_payload_with_line_breaks_is_one_line(path):
    file = TraceFile(path)
    begin(file).notify("x", b'{\n "a":\r\n 1}')
    file.close()

    assert Trace.load(path).messages[0].params == {"a": 1}


def test_half_surrogate_pairs_and_large_numbers_can_be_read_again(path):
    file = TraceFile(path)
    begin(file).notify("x", b'{"text":"\\ud800","n":123456789012345678901234567890,"f":1e400}')
    file.close()

    assert Trace.load(path).messages[0].params["n"] == 123456789012345678901234567890


def test_a_file_that_cannot_be_created_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        TraceFile(tmp_path / "missing" / "trace.jsonl")


def test_the_trace_of_a_chain_that_did_not_start_is_renamed(path):
    first = TraceFile(path)
    recorder = first.recorder("review")
    recorder.logged("error", "chain failed to start", {})
    recorder.end()
    first.close()

    second = TraceFile(path)
    begin(second).notify("x", b"{}")
    second.close()

    (failed,) = Trace.load(f"{path}.1").records
    assert isinstance(failed, LogRecord)
    assert failed.event == "chain failed to start"
    assert [message.method for message in Trace.load(path).messages] == ["x"]


def test_a_directory_is_refused(path):
    path.mkdir()

    with pytest.raises(FileExistsError, match="is not a trace file"):
        TraceFile(path)


def test_a_pipe_gets_the_records_and_is_not_renamed(path):
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = TraceFile(path, max_size=100)
    port = begin(file)
    port.notify("session/update", update(0))
    file.flush()
    port.notify("session/update", update(1))
    file.close()

    lines = os.read(reader, 65536).splitlines()
    os.close(reader)
    assert [json.loads(line).get("n") for line in lines] == [None, 1, 2]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_pipe_without_a_reader_is_an_error(path):
    os.mkfifo(path)

    with pytest.raises(OSError, match="no program reads this pipe"):
        TraceFile(path)


@pytest.mark.parametrize(("mode", "is_refused"), [(0o1777, True), (0o777, True), (0o755, False)])
def test_a_pipe_of_another_user_in_a_shared_directory_gets_no_record(
    path, monkeypatch, mode, is_refused
):
    """`/tmp/t.jsonl`, made before the user starts a trace of that name."""
    path.parent.chmod(mode)
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    stat = os.fstat

    def of_another_user(descriptor):
        found = list(stat(descriptor))
        found[4] += 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", of_another_user)
    if is_refused:
        with pytest.raises(PermissionError, match="another user has put it into this shared"):
            TraceFile(path)
    else:
        TraceFile(path).close()
    os.close(reader)


def test_a_file_that_is_no_trace_is_not_renamed(path):
    path.write_text("version: 1\n")

    with pytest.raises(FileExistsError, match="is not a trace file"):
        TraceFile(path)

    assert path.read_text() == "version: 1\n"
    assert os.listdir(path.parent) == [path.name]
