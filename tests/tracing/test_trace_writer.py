"""The thread that encodes what recorders record."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest
from support.seen_port import traced_port

from conductor.tracing import trace_writer
from conductor.tracing.trace_file import TraceFile
from conductor.tracing.trace_writer import TraceWriter

UPDATE = b'{"sessionId":"s1","update":{"text":"%b"}}' % (b"x" * 1000)


def send(writer, times=1):
    recorder = writer.recorder("review")
    recorder.attach([])
    port = traced_port(recorder, "client", "agent")
    for _ in range(times):
        port.notify("session/update", UPDATE)


def test_listeners_get_every_record_without_a_file():
    blocks = []
    writer = TraceWriter()
    writer.listeners.append(blocks.append)
    writer.start()
    send(writer, 3)
    writer.close()

    header, *messages = (msgspec.json.decode(line) for block in blocks for line in block)
    assert header["type"] == "trace"
    assert [each["n"] for each in messages] == [1, 2, 3]


def test_much_is_written_before_the_delay_is_over(monkeypatch):
    monkeypatch.setattr(trace_writer, "_DELAY", 60.0)
    written = threading.Event()
    writer = TraceWriter()
    writer.listeners.append(lambda lines: written.set())
    writer.start()
    try:
        send(writer, 10)
        assert not written.is_set()
        send(writer, 3000)
        assert written.wait(20)
    finally:
        writer.close()


@pytest.mark.parametrize("payloads", ["head", "none"])
def test_listeners_get_whole_payloads_that_the_file_leaves_out(tmp_path, payloads):
    lines = []
    file = TraceFile(tmp_path / "trace.jsonl", payloads)
    file.listeners.append(lines.extend)
    send(file)
    file.close()

    written = msgspec.json.decode((tmp_path / "trace.jsonl").read_bytes().splitlines()[-1])
    heard = msgspec.json.decode(lines[-1])
    assert written["params"] is None
    assert heard["params"] == msgspec.json.decode(UPDATE)
    assert written["n"] == heard["n"]


def test_a_disk_error_does_not_end_the_listeners(tmp_path, monkeypatch):
    monkeypatch.setattr(TraceFile, "_create", lambda self: os.open("/dev/full", os.O_WRONLY))
    lines = []
    file = TraceFile(tmp_path / "trace.jsonl")
    file.listeners.append(lines.extend)
    send(file)
    file.flush()
    send(file)
    file.close()

    assert len(lines) == 4
