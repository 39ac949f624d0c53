import gzip
import json

import pytest

from conductor.tracing.reader import Trace, TraceFileError, read_records
from conductor.tracing.records import RequestRecord, ResponseRecord

REQUEST = {"type": "request", "ts": 0.5, "protocol": "acp", "from": "Client", "to": "Proxy(0)"}
REQUEST |= {"id": "9f", "method": "initialize", "params": {"protocolVersion": 1}}
RESPONSE = {"type": "response", "ts": 0.75, "from": "Proxy(0)", "to": "Client", "id": "9f"}
RESPONSE |= {"is_error": False, "payload": {}}


def lines(*records):
    return [json.dumps(record).encode() + b"\n" for record in records]


def test_records_of_another_conductor_are_completed():
    request, response = read_records(lines(REQUEST, RESPONSE))

    assert isinstance(request, RequestRecord)
    assert (request.n, request.sender, request.receiver) == (1, "Client", "Proxy(0)")
    assert isinstance(response, ResponseRecord)
    assert (response.n, response.request, response.method) == (2, 1, "initialize")
    assert response.elapsed == 0.25


def test_hops_of_another_conductor_are_counted_from_the_client():
    ends = [("Client", "Proxy(0)"), ("Proxy(1)", "Proxy(0)"), ("Proxy(1)", "Agent")]
    ends += [("Agent", "Client")]

    records = read_records(lines(*(REQUEST | {"from": a, "to": b} for a, b in ends)))

    assert [each.hop for each in records] == [0, 1, 2, 0]


def test_a_line_that_is_being_written_is_left_out():
    assert len(list(read_records([*lines(REQUEST), b'{"type":"req']))) == 1


def test_a_compressed_trace_is_refused_with_what_to_do():
    with pytest.raises(TraceFileError, match=r"t\.jsonl\.gz: is compressed: unpack it first"):
        list(read_records([gzip.compress(b"{}\n")], "t.jsonl.gz"))


@pytest.mark.parametrize("line", [b"no\n", b"[1]\n", b'{"type":"other","ts":1}\n', b"{}\n"])
def test_a_file_that_is_no_trace_is_refused_with_the_line(line, tmp_path):
    file = tmp_path / "some.jsonl"
    file.write_bytes(b"".join([*lines(REQUEST), b"\n", line]))

    with pytest.raises(TraceFileError, match=r"some\.jsonl:3: not a record of a trace: .*"):
        Trace.load(file)


def test_a_file_of_one_line_that_begins_no_record_is_refused():
    with pytest.raises(TraceFileError, match=r"notes\.md:1: not a record"):
        list(read_records([b"no line feed"], "notes.md"))

    assert list(read_records([b'{"type":"tr'], "t.jsonl")) == []


@pytest.mark.parametrize("number", ["9" * 25, "9" * 6000, "1e999"])
def test_a_number_of_any_size_in_a_payload_is_read(number):
    (line,) = lines(REQUEST)
    line = line.replace(b'"protocolVersion": 1', b'"protocolVersion": %b' % number.encode())

    (request,) = read_records([line])

    assert str(request.params["protocolVersion"]) == number.replace("1e999", "inf")
