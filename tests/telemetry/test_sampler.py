"""The samplers of `OTEL_TRACES_SAMPLER`."""

from __future__ import annotations

import secrets

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from conductor.telemetry.sampler import sampler_of
from conductor.telemetry.trace_context import TraceContext

LOW, HIGH = "0" * 16 + "0" * 15 + "1", "0" * 16 + "f" * 16


def parent(sampled):
    return TraceContext(LOW, "0" * 15 + "1", sampled)


@pytest.mark.parametrize(
    ("name", "root", "below_sampled", "below_unsampled"),
    [
        ("", True, True, False),
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
        ("ParentBased_TraceIdRatio", True, True, False),
    ],
)
def test_the_sampler_decides_by_the_parent(name, root, below_sampled, below_unsampled):
    sample = sampler_of({"OTEL_TRACES_SAMPLER": name})

    assert sample(None, LOW) is root
    assert sample(parent(True), LOW) is below_sampled
    assert sample(parent(False), LOW) is below_unsampled


def test_the_ratio_takes_the_same_traces_as_the_sdk():
    environ = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    sample, sdk = sampler_of(environ), TraceIdRatioBased(0.25)
    ids = [secrets.token_hex(16) for _ in range(200)]

    expected = [sdk.should_sample(None, int(id, 16), "x").decision.is_sampled() for id in ids]
    assert [sample(None, id) for id in ids] == expected
    assert (sample(None, LOW), sample(None, HIGH)) == (True, False)


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
    ],
)
def test_a_setting_that_cannot_be_followed_is_named(environ):
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER"):
        sampler_of(environ)
