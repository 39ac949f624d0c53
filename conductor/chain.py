"""One client's chain: its components, linked; started lazily, stopped in order.

The chain begins with the client's transport and ends when the client closes it, when somebody asks
for it, or when a component is lost without which it cannot go on. Whatever the reason, the order of
the end is the same: what came in is delivered, the components' inputs are closed one after the
other from the client to the agent, whoever stays is ended by TERM and then by KILL, open requests
are answered, the client's last bytes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import msgspec
import trio

from conductor.components.base import Component, Host
from conductor.connection.connection import Connection
from conductor.connection.pump import Flusher, Gate, pump, write_backlog
from conductor.errors import ChainFileError, ComponentError, StartError
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.masking import masked
from conductor.messages import INTERNAL_ERROR, encode_error, error_of
from conductor.routing.capabilities import with_acp
from conductor.routing.door import FrontDoor
from conductor.routing.sides import Side, link
from conductor.routing.wire import Wire
from conductor.transport.base import Transport

__all__ = ["Chain", "Ending"]

_TERM_GRACE = 2.0
_LAST_BYTES = 5.0
"""Seconds that the client has to read what is left for it, at the end."""

log = get_logger(component="conductor")


@attrs.frozen
class Ending:
    """Why a chain ended."""

    reason: Literal["client", "stopped", "failed", "never started"]
    """"never started": the client asked for it, but in vain."""
    error: ComponentError | None = None


@attrs.define(eq=False)
class Chain(Host):
    """Serves one client.

    `make` builds the components, first the one nearest the client; it is called for every attempt
    to initialize, and may raise `ComponentError`. In "proxy" mode the client is a conductor above
    us, which is also the successor of the last component.
    """

    transport: Transport
    make: Callable[[], Sequence[Component]]
    mode: Literal["agent", "proxy"] = "agent"
    limits: Limits = attrs.field(factory=Limits)
    stop_timeout: float = 5.0
    bridged: bool = True
    """Whether MCP servers over ACP are welcome whatever the agent can do."""
    flusher: Flusher = attrs.field(factory=Flusher, init=False)
    client: Wire = attrs.field(init=False)
    components: list[Component] = attrs.field(factory=list, init=False)
    initialized: trio.Event = attrs.field(factory=trio.Event, init=False)
    _door: FrontDoor = attrs.field(init=False)
    _connection: Connection = attrs.field(init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _ending: Ending | None = attrs.field(default=None, init=False)
    _end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _told: int = attrs.field(default=0, init=False)
    _start_error: ComponentError | None = attrs.field(default=None, init=False)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _stopping: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        role: Literal["client", "parent"] = "client" if self.mode == "agent" else "parent"
        self.client = Wire("client", role, self._report)
        self._connection = Connection(
            self.transport, self.client, self.flusher, answers_malformed=True, limits=self.limits
        )
        self.client.connection = self._connection
        self._door = FrontDoor(
            self.client.plain,
            start=self._start,
            amend=self._amend,
            opened=self._opened,
            closed=self._refused,
        )

    async def run(self) -> Ending:
        """Serve until the end, and leave nothing behind."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.flusher.run)
            nursery.start_soon(write_backlog, self._connection, self.flusher)
            nursery.start_soon(self._read_client)
            await self._end.wait()
            self._reading.cancel()
            await self._shut_down()
            nursery.cancel_scope.cancel()
        assert self._ending is not None
        return self._ending

    def stop(self) -> None:
        """End in order, as if the client had gone."""
        self._finish(Ending("stopped"))

    def kill(self) -> None:
        """End at once: nobody is waited for any more."""
        self._finish(Ending("stopped"))
        for component in self.components:
            component.kill()
        self._stopping.cancel()

    # -- Host --------------------------------------------------------------------------------------

    def gate(self, component: Component) -> Gate | None:
        """An agent is not read while the client, or any proxy, has too much to read.

        A proxy is always read, because its one pipe carries both directions, until what waits is
        more than we may hold at all.
        """
        if component.agent_side is None:
            return self.edge_gate()
        return Gate(self.flusher, self._all_backlog, self.limits.max_buffered_bytes)

    def edge_gate(self) -> Gate:
        return Gate(self.flusher, lambda: max(self._client_backlog(), self._proxies_backlog()))

    def restarted(self, component: Component, lost_sessions: list[str]) -> None:
        sessions = self.client.recollection.sessions
        for session in list(sessions):
            lost = component.agent_side is None and session in lost_sessions
            more = " and has lost this session; start a new one, or load it" if lost else ""
            self.tell(session, f"{component.name} failed, was restarted{more}")
            if lost:
                del sessions[session]

    def bypass(self, component: Component, error: ComponentError) -> None:
        assert component.agent_side is not None
        successor, predecessor = component.agent_side.neighbour, component.client_side.neighbour
        link(predecessor, successor)
        for session in self.client.recollection.sessions:
            self.tell(session, masked(f"{error}; the chain goes on without it"))

    def component_failed(self, component: Component, error: ComponentError) -> None:
        if component not in self.components:
            return  # of an attempt that was given up
        if self._door.state != "open":
            self._start_error = error
            log.error("the chain did not start", error=str(error))
            self._door.fail(error)
            return
        log.error("a component was lost", error=str(error))
        self._finish(Ending("failed", error))

    def insert(self, component: Component, *, before: Component) -> None:
        """Put a proxy into the running chain; what was under way before passes it by."""
        assert component.agent_side is not None
        self.components.insert(self.components.index(before), component)
        component.prepare(self)
        link(before.client_side.neighbour, component.client_side)
        link(component.agent_side, before.client_side)
        self._nursery.start_soon(component.run)

    def tell(self, session: str, text: str) -> None:
        """Tell the person at the client, in the conversation: there is no better place."""
        content = {"type": "text", "text": f"[acp-conductor] {text}\n"}
        update: dict[str, Any] = {"sessionUpdate": "agent_message_chunk", "content": content}
        if self._door.version == 2:
            self._told += 1
            update["messageId"] = f"acp-conductor-{self._told}"
        params = msgspec.json.encode({"sessionId": session, "update": update})
        self.client.plain.notify("session/update", params)

    # -- starting ----------------------------------------------------------------------------------

    def _start(self) -> Side:
        """Start every component, all at once, and link them."""
        self._start_error = None
        self._settled = trio.Event()
        started: list[Component] = []
        try:
            components = list(self.make())
            for component in components:
                component.prepare(self)
                started.append(component)
        except (ComponentError, ChainFileError) as exc:
            for component in started:
                component.kill()
                self._nursery.start_soon(component.run)
            if isinstance(exc, ChainFileError):
                exc = StartError("conductor", str(exc))
            self._start_error = exc
            raise exc from None
        self.components = components
        sides = [component.client_side for component in components]
        for component, successor in zip(components, sides[1:], strict=False):
            assert component.agent_side is not None
            link(component.agent_side, successor)
        last = components[-1].agent_side if components else None
        if self.mode == "proxy":
            assert self.client.wrapped is not None
            if last is not None:
                link(last, self.client.wrapped)
        for component in components:
            self._nursery.start_soon(component.run)
        if components:
            return sides[0]
        if self.client.wrapped is None:
            raise StartError("conductor", "the chain has no agent")
        return self.client.wrapped  # a chain of nothing: what comes in goes to the successor

    def _amend(self, result: bytes) -> bytes:
        return with_acp(result) if self.bridged else result

    def _refused(self) -> None:
        """`initialize` was answered with an error: what was started for it has to go."""
        self._discard()
        self._settled.set()
        self.flusher.made_room()

    def _opened(self) -> None:
        self.client.initialized = True
        self.flusher.made_room()
        self.initialized.set()
        self._settled.set()

    def _discard(self) -> None:
        """Take down what an initialization that failed has started."""
        for component in self.components:
            component.kill()
        self.components = []

    # -- the client --------------------------------------------------------------------------------

    async def _read_client(self) -> None:
        gate = Gate(
            self.flusher,
            lambda: max((c.backlog() for c in self.components), default=0) + self._door.size,
            hung_up=self.transport.hung_up,
        )
        with self._reading:
            await pump(self._connection, self.flusher, gate)
            self.client.end_input(encode_error(INTERNAL_ERROR, "The client is gone"))
            self.flusher.flush()
            if self._door.state == "starting":
                await self._settled.wait()  # what waits behind the door is to be delivered
            if self._door.state == "open":
                self._finish(Ending("client"))
            else:
                self._finish(Ending("never started" if self._door.tried else "client"))

    def _all_backlog(self) -> int:
        return self._client_backlog() + sum(component.backlog() for component in self.components)

    def _client_backlog(self) -> int:
        return self._connection.outbox.size

    def _proxies_backlog(self) -> int:
        return max((c.backlog() for c in self.components[:-1]), default=0)

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self._end.set()

    async def _shut_down(self) -> None:
        with self._stopping:
            if self._ending is not None and self._ending.reason in ("client", "failed"):
                await self._deliver_what_is_in_flight()
            await self._close_inputs()
            await self._end_components()
        for component in self.components:
            component.kill()
        for component in self.components:
            await component.wait_ended()
        self._answer_open_requests()
        self.flusher.flush()
        self._connection.close_writing()
        with trio.move_on_after(_LAST_BYTES) as patience:
            if self._stopping.cancel_called:
                patience.cancel()
            while not self._connection.closed:
                await self.flusher.wait_room()

    async def _deliver_what_is_in_flight(self) -> None:
        """The client sends nothing more, but may read: requests of its own are still answered.

        After a loss, too: proxies that are processes pass on the error that names the component.
        """
        with trio.move_on_after(self.stop_timeout):
            while self._connection.unanswered() and not self._connection.closed:
                await self.flusher.wait_flushed()

    async def _close_inputs(self) -> None:
        """From the client to the agent: each gets what its predecessor still had to say."""
        with trio.move_on_after(self.stop_timeout / 2):
            for component in self.components:
                component.close_input()
                await component.wait_finished()

    async def _end_components(self) -> None:
        for component in self.components:
            component.close_input()
        with trio.move_on_after(self.stop_timeout / 2) as waiting:
            await self._wait_all_ended()
        if waiting.cancelled_caught:
            for component in self.components:
                component.terminate()
            with trio.move_on_after(_TERM_GRACE):
                await self._wait_all_ended()

    async def _wait_all_ended(self) -> None:
        for component in self.components:
            await component.wait_finished()
            await component.wait_ended()

    def _answer_open_requests(self) -> None:
        """Nobody is left to answer: every request that is still open is answered here."""
        ending = self._ending
        if ending is not None and ending.error is not None:
            error = error_of(ending.error)
        else:
            error = encode_error(INTERNAL_ERROR, "The chain ended before this was answered")
        for call in self._connection.unanswered():
            self._connection.respond(call, None, error)

    def _report(self, event: str, detail: str) -> None:
        log.warning(event, sender="client", detail=detail)
