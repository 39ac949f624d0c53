"""Conditions (`when:`) that cannot hold, so that a component is silently left out (`check`)."""

from __future__ import annotations

from collections.abc import Iterator

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.diagnostics import closest_match
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.chainfile.when import agent_names, fits_an_agent

__all__ = ["check_conditions"]


def check_conditions(chain: ChainFile) -> Iterator[Diagnostic]:
    """A warning for each capability that no schema knows, and for each pattern that does not fit
    the chain's own agent."""
    agents = agent_names(chain)
    for spec in chain.flat():
        for when in spec.when:
            for index, path in enumerate(when.capability):
                yield from _unknown_capability(spec, path, index)
            # One of several patterns is enough.
            if (
                agents
                and when.agent
                and not any(fits_an_agent(each, agents) for each in when.agent)
            ):
                named = ", ".join(f"`{name}`" for name in sorted(agents))
                yield _warning(
                    spec,
                    "agent",
                    0,
                    f"it is always left out: `{'`, `'.join(when.agent)}` does not fit the agent of "
                    "this file",
                    f"the agent is called {named}; write its name or a shell pattern of it",
                )


def _unknown_capability(spec: ComponentSpec, path: str, index: int) -> Iterator[Diagnostic]:
    if "_meta" in path.split("."):
        return
    from conductor.schema import client_capability_paths

    known = client_capability_paths()
    if path in known:
        return
    meant = closest_match(path, known)
    if meant is not None:
        help = f"did you mean `{meant}`?"
    else:
        help = f"clients have {', '.join(sorted(known))}"
    yield _warning(spec, "capability", index, f"no client has a capability `{path}`", help)


def _warning(spec: ComponentSpec, key: str, index: int, message: str, help: str) -> Diagnostic:
    locations = spec.locations
    location = locations.get(("when", key, index)) or locations.get(("when", key)) or spec.location
    location = location or SourceLocation.whole("<command line>")
    return Diagnostic(location, f"{spec.name}: {message}", help=help, severity="warning")
