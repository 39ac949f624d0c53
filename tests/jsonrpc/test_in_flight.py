"""State of a request in flight, and of a batch."""

from __future__ import annotations

from conductor.jsonrpc.in_flight import BatchResponse, InFlightRequest


class Target:
    def __init__(self):
        self.cancelled = []

    def cancel(self, call):
        self.cancelled.append(call)


def test_a_request_forwards_its_cancellation_once():
    target = Target()
    call = InFlightRequest("m", source=None, target=target)

    call.cancel()
    call.cancel()

    assert (call.cancelled, target.cancelled) == (True, [call])


def test_an_answered_request_is_not_cancelled():
    target = Target()
    call = InFlightRequest("m", source=None, target=target, answered=True)

    call.cancel()

    assert (call.cancelled, target.cancelled) == (False, [])


def test_a_request_without_a_target_records_its_cancellation():
    call = InFlightRequest("m", source=None)

    call.cancel()

    assert call.cancelled


def test_a_batch_is_complete_when_it_is_sealed_and_every_slot_is_filled():
    batch = BatchResponse()
    first, second = batch.reserve(), batch.reserve()
    batch.fill(second, b"2")
    assert batch.complete() is None
    batch.sealed = True
    assert batch.complete() is None

    batch.fill(first, b"1")

    assert batch.complete() == b"[1,2]\n"


def test_a_batch_without_slots_is_not_answered():
    assert BatchResponse(sealed=True).complete() is None
