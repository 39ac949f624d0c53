"""The settings of adapters for a chain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conductor.chainfile.model import Adaptation, ComponentSpec

__all__ = ["adapter_settings"]


def adapter_settings(
    adapt: Mapping[str, Adaptation], components: Iterable[ComponentSpec]
) -> Mapping[str, Adaptation]:
    """Settings of the chain file; a proxy that the chain already names is not inserted again."""
    by_name = {spec.use: Adaptation("never") for spec in components if spec.use is not None}
    return {**adapt, **by_name}
