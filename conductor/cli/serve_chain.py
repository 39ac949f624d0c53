"""What `run`, `agent` and `proxy` have in common: serve components on stdio."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Literal

from conductor.chainfile.model import ChainFile, Component
from conductor.components.base import Component as Built
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

    def make() -> list[Built]:
        try:
            return build(specs, mode=mode, mcp_bridge=chain.mcp_bridge)
        finally:
            _collect_garbage()

    serve_stdio(
        make,
        mode=mode,
        limits=chain.limits,
        stop_timeout=max((spec.stop_timeout for spec in specs), default=5.0),
        bridged=False,  # the bridge knows, and says, what the agent can be given
    )


def _collect_garbage() -> None:
    """From now on (`main` has put it off): not among what was imported, which is there to stay."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
