"""The samplers of OpenTelemetry that `OTEL_TRACES_SAMPLER` names, as functions. Pure.

The decision is needed when a prompt arrives, for `traceparent`; the SDK takes 0.3 s to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conductor.telemetry.trace_context import Sampler, TraceContext

__all__ = ["SAMPLERS", "sampler_of"]

_PARENT_BASED: Final = "parentbased_"
SAMPLERS: Final = tuple(
    prefix + name
    for prefix in ("", _PARENT_BASED)
    for name in ("always_on", "always_off", "traceidratio")
)


def sampler_of(environ: Mapping[str, str]) -> Sampler:
    """The sampler of the environment variables `OTEL_TRACES_SAMPLER` and `…_ARG`.

    Raises `ValueError` for an unknown name or an invalid ratio.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    if name not in SAMPLERS:
        raise ValueError(f"OTEL_TRACES_SAMPLER={name}: expected one of {', '.join(SAMPLERS)}")
    is_parent_based = name.startswith(_PARENT_BASED)
    bound = 1 << 64
    if name.endswith("always_off"):
        bound = 0
    elif name.endswith("traceidratio"):
        bound = round(_ratio(environ.get("OTEL_TRACES_SAMPLER_ARG", "") or "1") * (1 << 64))

    def is_sampled(parent: TraceContext | None, trace_id: str) -> bool:
        if parent is not None and is_parent_based:
            return parent.sampled
        return int(trace_id[16:], 16) < bound

    return is_sampled


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG={text}: expected a ratio from 0 to 1")
    return ratio
