"""The times of records are those of two clocks that began at the same moment."""

from __future__ import annotations

import json

import pytest

from conductor.tracing.record_times import RecordTimes
from conductor.tracing.recorder import TraceRecorder

STARTED_AT = 1_795_458_272.218


def times(since):
    members = RecordTimes(50.0, STARTED_AT).members(50.0 + since)
    return json.loads(b"{%b}" % members)


@pytest.mark.parametrize(
    "since", [0, 0.000_001, 0.000_999, 0.001, 0.781_999, 0.782, 59.999_999, 1e6 + 0.25, -1.5]
)
def test_both_times_are_exact_to_a_microsecond(since):
    found = times(since)

    assert found["ts"] == pytest.approx(since, abs=1e-6)
    assert found["time"] == pytest.approx(STARTED_AT + since, abs=1e-6)


def test_messages_of_one_millisecond_have_their_own_times():
    one = RecordTimes(50.0, STARTED_AT)

    found = [json.loads(b"{%b}" % one.members(50 + n / 1e6))["ts"] for n in range(990, 1010)]

    assert found == [n / 1e6 for n in range(990, 1010)]


def test_a_recorder_begins_at_a_whole_millisecond_of_both_clocks():
    recorder = TraceRecorder("review")

    assert recorder.started_at * 1000 == pytest.approx(round(recorder.started_at * 1000), abs=1e-3)
