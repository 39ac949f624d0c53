"""`Placement`: what a proxy does that matters for its place in a chain (`Proxy.placement`).

Proxies declare what they do, and what they miss if a proxy that does it stands on their wrong side;
`check` and `doctor` compare the placements of a chain. So neither has a list of proxies.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Literal, TypeAlias

import msgspec

__all__ = ["Effect", "Placement"]

Effect: TypeAlias = Literal["adds_text", "serves_client", "opens_agents", "maps_paths"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a proxy, and on which side of the effects of others it must stand."""

    effects: Set[Effect] = frozenset()
    """Its effects. `adds_text`: it puts texts into prompts. `serves_client`: it answers the agent's
    requests for files or terminals. `opens_agents`: it gives prompts to agents of its own, which
    the proxies behind it do not see. `maps_paths`: proxies behind it see other paths than those of
    this machine."""
    after: Mapping[Effect, str] = {}
    """Effects of proxies that must stand before it, nearer to the client; each with the
    consequence if one stands behind it."""
    before: Mapping[Effect, str] = {}
    """Effects of proxies that must stand behind it, nearer to the agent; each with the
    consequence if one stands before it."""
