"""Base of components behind a link: ports, backlog, and the events of their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from conductor.routing.component import Component
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.routing.port import Port
from conductor.routing.trace import TracedOwnRequests, Tracer

if TYPE_CHECKING:
    from conductor.supervision.handler_reports import HandlerReports

__all__ = ["LinkComponent"]


class LinkComponent(Component):
    """A component with one or two ports on a link. Subclasses set `link` and the events."""

    link: Link
    """The conductor's end."""

    def __init__(self) -> None:
        self.handler_reports: HandlerReports | None = None
        """Reports of a plugin behind the link."""
        self._drained = trio.Event()
        self._ended = trio.Event()

    @property
    def client_port(self) -> Port:
        return self.link.plain

    @property
    def agent_port(self) -> Port | None:
        return self.link.enveloped

    @property
    def has_handlers(self) -> bool:
        return self.handler_reports is not None

    @property
    def records_causes(self) -> bool:
        return False

    def trace(self, tracer: Tracer) -> None:
        if self.handler_reports is not None:
            self.handler_reports.tracer = tracer
        self.trace_own_requests(tracer.trace_own_requests(self.name))
        tracer.trace(self.link.plain, self.name, "client")
        if self.link.enveloped is not None:
            tracer.trace(self.link.enveloped, self.name, "agent")

    def trace_own_requests(self, traced: TracedOwnRequests) -> None:
        """Show the requests of the conductor itself to the component; it may have none."""

    def fail_requests(self, failure: FailureErrors) -> None:
        self.link.fail_requests(failure)

    def backlog(self) -> int:
        return self.link.backlog()

    async def wait_drained(self) -> None:
        await self._drained.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()
