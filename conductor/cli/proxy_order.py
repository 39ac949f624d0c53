"""Warnings about proxies on the wrong side of each other: pure, from their placements.

A chain can run in a wrong order without any error, as `redact` before a proxy that adds texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.proxy.base import Effect, Placement

__all__ = ["PlacedProxy", "order_warnings"]


class PlacedProxy(msgspec.Struct, frozen=True):
    """A proxy of a chain, by its place in the list of all."""

    name: str
    kind: str
    """The same for all proxies of one class."""
    location: SourceLocation
    placement: Placement


def order_warnings(chain: Sequence[PlacedProxy]) -> Iterator[Diagnostic]:
    """A warning for each pair in the wrong order; `chain` begins nearest the client.

    A second proxy of the same kind on the right side makes it right.
    """
    for index, source in enumerate(chain):
        before, behind = chain[:index], chain[index + 1 :]
        for proxy, consequence in _misplaced(source, before, behind, "after"):
            yield _warning(proxy, source, consequence, needed=proxy, place=f"after `{source.name}`")
        for proxy, consequence in _misplaced(source, behind[::-1], before, "before"):
            yield _warning(
                source, proxy, consequence, needed=proxy, place=f"before `{source.name}`"
            )


def _misplaced(
    source: PlacedProxy,
    wrong_side: Sequence[PlacedProxy],
    right_side: Sequence[PlacedProxy],
    side: Literal["after", "before"],
) -> Iterator[tuple[PlacedProxy, str]]:
    """Proxies that must be on one side of a source and are only on the other; of each kind, the
    one next to the source, which is the last of `wrong_side`."""
    present = {proxy.kind for proxy in right_side}
    nearest = {proxy.kind: proxy for proxy in wrong_side if proxy.kind not in present}
    for proxy in nearest.values():
        wanted: Mapping[Effect, str] = getattr(proxy.placement, side)
        for effect in sorted(source.placement.effects & wanted.keys()):
            yield proxy, wanted[effect]


def _warning(
    first: PlacedProxy, second: PlacedProxy, consequence: str, *, needed: PlacedProxy, place: str
) -> Diagnostic:
    if first.location.path == second.location.path:
        help = f"write `{second.name}` before `{first.name}`"
    else:  # the files are merged in a fixed order
        source = second if needed is first else first
        help = f"add `{needed.name}` {place} in {source.location.path}"
    return Diagnostic(
        second.location,
        f"{second.name}: it stands after `{first.name}`, nearer to the agent: {consequence}",
        note=(first.location, f"`{first.name}` is here"),
        help=help,
        severity="warning",
    )
