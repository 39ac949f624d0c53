"""The token bucket that limits log output."""

from __future__ import annotations

from conductor.token_bucket import TokenBucket


def test_a_report_tells_how_many_were_left_out_before_it():
    allowance = TokenBucket(2)
    reports = [allowance.report(now) for now in (10.0, 10.0, 10.0, 10.0, 11.0, 11.0)]
    assert reports == [{}, {}, None, None, {"skipped": 2}, {}]
