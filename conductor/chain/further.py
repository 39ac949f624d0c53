"""Interface between a chain and the further chains of its client (`session_chains`)."""

from __future__ import annotations

from typing import Protocol

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.projects.planner import ChainPlan
from conductor.supervision.cancel_timeouts import CancelOverdue

__all__ = ["FurtherChains"]


class FurtherChains(Protocol):
    """The chains of one client besides the first one."""

    @property
    def backlog(self) -> int:
        """Bytes that the slowest of them has not read."""

    def open(
        self, plan: ChainPlan, call: InFlightRequest, method: str, params: Payload | None
    ) -> bool:
        """Set up a session in the chain of a plan, and start it if it does not run; false if that
        is the first chain. Raises `RequestError`."""

    def has_overdue(self, overdue: CancelOverdue) -> bool:
        """Whether a further chain has this cancelled turn or request."""

    def close_inputs(self, *, at_once: bool) -> None:
        """End all in order; `at_once`: without waiting for open requests."""

    def kill(self) -> None:
        """End all now."""

    async def wait_ended(self) -> None:
        """Return when all have ended."""
