"""What `run`, `agent` and `proxy` have in common: serve components on stdio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from conductor.chainfile.model import ChainFile, Component
from conductor.components.build import build
from conductor.serving import serve_stdio

__all__ = ["serve", "serve_file"]


def serve(components: Sequence[Component], *, mode: Literal["agent", "proxy"]) -> None:
    """Serve components that the command line names; never returns."""
    serve_file(
        ChainFile(
            path="<command line>",
            name="conductor",
            proxies=tuple(components if mode == "proxy" else components[:-1]),
            agent=None if mode == "proxy" else components[-1],
        )
    )


def serve_file(chain: ChainFile) -> None:
    """Serve a chain: to an editor if it has an agent, else to a conductor; never returns."""
    specs = chain.flat()
    mode: Literal["agent", "proxy"] = "proxy" if chain.agent is None else "agent"
    serve_stdio(
        lambda: build(specs, mode=mode, mcp_bridge=chain.mcp_bridge),
        mode=mode,
        limits=chain.limits,
        stop_timeout=max((spec.stop_timeout for spec in specs), default=5.0),
        bridged=False,  # the bridge knows, and says, what the agent can be given
    )
