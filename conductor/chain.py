"""One client's chain: its components, linked; started lazily, stopped in order.

The chain begins with the client's transport and ends when the client closes it, when somebody asks
for it, or when a component is lost without which it cannot go on. A client that may return over
another transport can be cut off in between (`park`, `take_back`). Whatever the reason, the order of
the end is the same: what came in is delivered, the components' inputs are closed one after the
other from the client to the agent, whoever stays is ended by TERM and then by KILL, open requests
are answered, the client's last bytes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import attrs
import msgspec
import trio

from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.components.base import Component, Host
from conductor.components.cancel_monitor import CancelMonitor
from conductor.components.cancellation import CancelDue, TurnOverdue
from conductor.components.stuck import (
    Arbiter,
    cancelled_answer,
    cancelled_error,
    idle_update,
    report_turn,
)
from conductor.connection.connection import Connection
from conductor.connection.pump import HIGH_WATER, Flusher, Gate, pump, write_backlog
from conductor.errors import ComponentError, ConductorError, StartError
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.masking import masked
from conductor.messages import INTERNAL_ERROR, encode_error
from conductor.routing.capabilities import with_acp
from conductor.routing.door import FrontDoor
from conductor.routing.failure import Failure
from conductor.routing.notices import Notices, Severity
from conductor.routing.sides import Side, link
from conductor.routing.wire import Wire
from conductor.transport.base import Transport
from conductor.transport.spawning import end_early

if TYPE_CHECKING:
    from conductor.routing.parking import Parking

__all__ = ["Chain", "Ending", "Explained"]

_LOOK_AGAIN = 0.1
"""Seconds after which a client that is waited for is looked at: whether it is still there."""
_LAST_MOMENT, _AT_ONCE = 3.0, 1.0
"""Seconds that components have to end after they were killed; a process whose pipes others hold
takes two. The second is for an end that is asked for twice."""
_LAST_BYTES = 5.0
"""Seconds that the client has to read what is left for it, at the end."""

_GONE = encode_error(INTERNAL_ERROR, "The client is gone")

log = get_logger(component="conductor")


class Ending(msgspec.Struct, frozen=True):
    """Why a chain ended."""

    reason: Literal["client", "stopped", "failed", "never started"]
    """"never started": the client asked for it, but in vain."""
    error: ComponentError | None = None


class Explained(msgspec.Struct, frozen=True):
    """For `Chain.explained`: where the user finds more."""

    file: str | None = None
    """The chain file."""
    log: str | None = None
    """The file that our stderr goes to, if it is one."""


@attrs.define(eq=False, repr=False)
class Chain(Host):
    """Serves one client.

    `make` builds the components, first the one nearest the client; it is called for every attempt
    to initialize, and may raise `ConductorError`. In "proxy" mode the client is a conductor above
    us, which is also the successor of the last component.
    """

    transport: Transport
    make: Callable[[], Sequence[Component]]
    mode: Literal["agent", "proxy"] = "agent"
    limits: Limits = attrs.field(factory=Limits)
    stop_timeout: float = 5.0
    bridged: bool = True
    """Whether MCP servers over ACP are welcome whatever the agent can do."""
    answers_loss: bool = True
    """Whether open requests are answered when a component is lost; else by the conductor above."""
    abandon: Callable[[Ending], None] | None = None
    """Called at the end of all that can be done, if a component does not end; else `run` waits."""
    watches_turns: bool = True
    """Whether a cancelled turn is ended by this chain, whatever holds it up; in "proxy" mode, the
    conductor above does so."""
    explained: Explained | None = None
    """What an agent that explains a failed start knows; without it the client gets the error."""
    flusher: Flusher = attrs.field(factory=Flusher, init=False)
    client: Wire = attrs.field(init=False)
    components: list[Component] = attrs.field(factory=list, init=False)
    initialized: trio.Event = attrs.field(factory=trio.Event, init=False)
    _turns: CancelMonitor = attrs.field(init=False)
    _arbiter: Arbiter = attrs.field(factory=Arbiter, init=False)
    _door: FrontDoor = attrs.field(init=False)
    _parking: Parking | None = attrs.field(default=None, init=False)
    _returned: trio.Event = attrs.field(factory=trio.Event, init=False)
    _connection: Connection = attrs.field(init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _ending: Ending | None = attrs.field(default=None, init=False)
    _end: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _notices: Notices = attrs.field(factory=Notices, init=False)
    _inserted: set[Component] = attrs.field(factory=set, init=False)
    _start_error: ConductorError | None = attrs.field(default=None, init=False)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _writing: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _stopping: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        role: Literal["client", "parent"] = "client" if self.mode == "agent" else "parent"
        self.client = Wire("client", role, self._report)
        self.client.recollection.limits = self.limits
        self._turns = CancelMonitor(
            CANCEL_TIMEOUT, lambda: self._door.version == 2, self._on_cancel_due
        )
        if self._ends_turns:
            self.client.client_turns = self._turns
        self._connect(self.transport)
        self._door = FrontDoor(
            self.client.plain,
            start=self._start,
            amend=self._amend,
            opened=self._opened,
            closed=self._refused,
            explain=None if self.explained is None else self._explain,
            max_initialize=self.limits.max_initialize_bytes,
        )

    async def run(self) -> Ending:
        """Serve until the end, and leave nothing behind."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.flusher.run)
            nursery.start_soon(self._serve_client)
            if self._ends_turns:
                nursery.start_soon(self._turns.run)
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

    # -- a client that comes and goes --------------------------------------------------------------

    def expect_return(self) -> None:
        """The client may be cut off and come back: remember what it is asked from now on.

        Not a conductor above us: to that one we are a component, and started again.
        """
        if self.mode == "agent":
            from conductor.routing.unanswered import Unanswered

            self.client.observer = Unanswered()

    def park(self, unread: bytes = b"") -> bool:
        """The client is cut off: go on without it, until it is taken back or `stop` is called.

        `unread` is what its transport had been given and nobody has read. The caller ends the
        transport afterwards. False where there is nothing to go on with, or no return is expected.
        """
        from conductor.routing.parking import Parking
        from conductor.routing.unanswered import Unanswered, undelivered

        unanswered = self.client.observer
        if self._door.state != "open" or self._ending or not isinstance(unanswered, Unanswered):
            return False
        if self._parking is None:
            made_room = self.flusher.made_room
            self._parking = Parking(self.client, unanswered, self._door.answer, made_room)
        self._parking.leave(undelivered(self._connection, unread))
        self._connection.lose_writing()
        self._writing.cancel()
        self._returned = trio.Event()
        return True

    def take_back(self, transport: Transport) -> None:
        """The client has returned, over this transport."""
        self.transport = transport
        self._returned.set()

    # -- Host --------------------------------------------------------------------------------------

    def gate(self, component: Component) -> Gate | None:
        """An agent is not read while the client, or any proxy, has too much to read.

        A proxy is read even then, because its one pipe carries both directions, and one that cannot
        write may not read: until the one before it, or an outside reader, has its share of what we
        may hold waiting. So each waits only for somebody nearer to the client, which waits for
        nobody: there is no circle. What floods toward the agent meets the end of our memory.
        """
        agent_side = component.agent_side
        if agent_side is None:
            return self.edge_gate()
        share, most = self._share(), self.limits.max_buffered_bytes * 5 // 4

        def backlog() -> int:
            before = max(self._client_backlog(), component.client_side.neighbour.backlog())
            return max(before, agent_side.neighbour.unread(), self._all_backlog() - most + share)

        return Gate(self.flusher, backlog, share)

    def edge_gate(self) -> Gate:
        return Gate(self.flusher, lambda: max(self._client_backlog(), self._proxies_backlog()))

    def stuck(
        self, watcher: Component | None, cancelled: tuple[Literal["turn", "request"], str]
    ) -> tuple[Component | None, bool]:
        if not self._ends_turns:
            return None, False
        return self._arbiter.find(self.components, watcher, cancelled, trio.current_time())

    def restarted(self, component: Component, lost_sessions: list[str]) -> None:
        sessions = self.client.recollection.sessions
        for session in list(sessions):
            title = f"{component.name} failed, was restarted"
            if component.agent_side is None and session in lost_sessions:
                title += " and has lost this session"
                self.tell(session, title, "start a new one, or load it", severity="error")
                self.client.recollection.forget(session)
            else:
                self.tell(session, title)

    def bypass(self, component: Component, error: ComponentError) -> None:
        _link_past(component)
        title, _ = error.told()
        for session in self.client.recollection.sessions:
            self.tell(session, masked(title), "the chain goes on without it")

    def component_failed(self, component: Component, error: ComponentError) -> None:
        if component not in self.components:
            return  # of an attempt that was given up
        if component in self._inserted:
            self._take_out(component)
            log.error("the chain goes on without a component", error=str(error), **error.untold())
            return
        if self._door.state != "open":
            self._start_error = error
            log.told_error("the chain did not start", error=str(error), **error.untold())
            self._door.fail(error)
            return
        log.error("a component was lost", error=str(error), **error.untold())
        self._finish(Ending("failed", error))

    def insert(self, component: Component, *, before: Component) -> None:
        """Put a proxy into the running chain; what was under way before passes it by.

        If it fails, it is taken out again: the chain was complete without it. Raises what `prepare`
        raises.
        """
        assert component.agent_side is not None
        component.prepare(self)  # if it raises, nothing has changed
        self.components.insert(self.components.index(before), component)
        self._inserted.add(component)
        link(before.client_side.neighbour, component.client_side)
        link(component.agent_side, before.client_side)
        self._nursery.start_soon(component.run)

    def _take_out(self, component: Component) -> None:
        _link_past(component)
        self._inserted.discard(component)
        self.components.remove(component)

    def tell(
        self,
        session: str,
        title: str,
        detail: str | None = None,
        *,
        severity: Severity = "warning",
    ) -> None:
        params = self._notices.params(session, title, detail, severity)
        parking = self._parking
        parked = parking is not None and parking.standing
        toward_client = parking.inside if parking is not None and parked else self.client.plain
        toward_client.notify("session/update", params)

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
        except ConductorError as exc:
            for component in started:
                component.kill()
                self._nursery.start_soon(component.run)
            self._start_error = exc
            log.told_error("the chain did not start", error=masked(str(exc)), **exc.untold())
            raise
        finally:
            end_early()
        self.components = components
        if components:
            seconds = self._arbiter.timeout = components[-1].cancel_timeout
            self._turns.cancellations.timeout = seconds
            for component in components:
                component.set_cancel_timeout(seconds)
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

    def _explain(self, error: bytes) -> str:
        """What the explaining agent says about a failed start."""
        from conductor.routing.explaining import client_name, explanation

        assert self.explained is not None
        refused = (each.name for each in reversed(self.components) if _has_refused(each))
        return explanation(
            error,
            component=None if self._start_error is not None else next(refused, None),
            file=self.explained.file,
            log=self.explained.log,
            client=client_name(self._door.params),
        )

    def _amend(self, result: bytes) -> bytes:
        return with_acp(result) if self.bridged else result

    def _refused(self) -> None:
        """`initialize` was answered with an error: what was started for it has to go."""
        self._discard()
        self._settled.set()
        self.flusher.made_room()

    def _opened(self) -> None:
        self.client.initialized = True
        self._notices = Notices.of(self._door.params, self._door.version)
        self.flusher.made_room()
        self.initialized.set()
        self._settled.set()

    def _discard(self) -> None:
        """Take down what an initialization that failed has started."""
        for component in self.components:
            component.kill()
        self.components = []

    # -- cancelled turns ---------------------------------------------------------------------------

    @property
    def _ends_turns(self) -> bool:
        return self.watches_turns and self.mode == "agent"

    def _on_cancel_due(self, due: CancelDue) -> None:
        """What the client cancelled goes on, and no component behind a wire ends it."""
        if self._door.state != "open":
            return
        if isinstance(due, TurnOverdue):
            self._end_cancelled_turn(due)
            return
        call = due.call
        stuck, is_ours = self.stuck(None, ("request", call.method))
        if is_ours:
            name = "the chain" if stuck is None else stuck.name
            log.warning("withdrawn request was not answered", method=call.method, stuck=name)
            self.client.plain.respond(call, None, cancelled_error(call.method, name))

    def _end_cancelled_turn(self, due: TurnOverdue) -> None:
        session, seconds = due.session, self._turns.cancellations.timeout
        stuck, is_ours = self.stuck(None, ("turn", session))
        if not is_ours:
            return
        name = "the chain" if stuck is None else stuck.name
        log.warning("cancelled turn goes on", session=session, seconds=seconds, stuck=name)
        report_turn(self, session, name, seconds)
        version_2 = self._door.version == 2
        if stuck is None or not stuck.end_turn(session, version_2=version_2):
            for call in due.prompts:
                answer = cancelled_answer(call.method, name, version_2=version_2)
                self.client.plain.respond(call, *answer)
        if due.running:
            side = self.client.plain if stuck is None else stuck.client_side.neighbour
            side.notify("session/update", idle_update(session, "cancelled"))

    # -- the client --------------------------------------------------------------------------------

    def _connect(self, transport: Transport) -> None:
        self._connection = self.client.connection = Connection(
            transport, self.client, self.flusher, answers_malformed=True, limits=self.limits
        )

    async def _serve_client(self) -> None:
        with self._reading:
            await self._read_client()
            while self._parking is not None and self._parking.away:
                while not self._returned.is_set():
                    await self._returned.wait()
                self._connect(self.transport)
                self._parking.back()
                await self._read_client()
            self.client.end_input(_GONE)
            self.flusher.flush()
            if self._door.state == "starting":
                await self._wait_settled()  # what waits behind the door is to be delivered
            if self._door.state == "open":
                self._finish(Ending("client"))
            else:
                self._finish(Ending("never started" if self._door.tried else "client"))

    async def _wait_settled(self) -> None:
        """Wait for the end of an initialization, as long as for open requests after one."""
        with trio.move_on_after(self.stop_timeout):
            while not self._settled.is_set() and not self.transport.deaf():
                with trio.move_on_after(_LOOK_AGAIN):
                    await self._settled.wait()

    async def _read_client(self) -> None:
        self._nursery.start_soon(self._write_client, self._connection)

        def backlog() -> int:
            most = max((component.backlog() for component in self.components), default=0)
            # A reader outside, whom a plugin sends to, may be slower before the client is stopped.
            outside = self.client.plain.neighbour.unread() - self._share() + HIGH_WATER
            return max(most, outside) + self._door.size

        gate = Gate(self.flusher, backlog, hung_up=self.transport.hung_up)
        await pump(self._connection, self.flusher, gate)

    async def _write_client(self, connection: Connection) -> None:
        with trio.CancelScope() as self._writing:
            await write_backlog(connection, self.flusher)

    def _all_backlog(self) -> int:
        return self._client_backlog() + sum(component.backlog() for component in self.components)

    def _share(self) -> int:
        """Of what may wait in all, the part of each who is waited for."""
        return self.limits.max_buffered_bytes // (len(self.components) + 1)

    def _client_backlog(self) -> int:
        parked = self._parking.size if self._parking is not None else 0
        return self._connection.outbox.size + parked

    def _proxies_backlog(self) -> int:
        return max((c.backlog() for c in self.components[:-1]), default=0)

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self._end.set()

    async def _shut_down(self) -> None:
        if self._parking is not None:
            self._parking.end(_GONE)
        assert self._ending is not None
        leaves_open = self._ending.reason == "failed" and not self.answers_loss
        with self._stopping:
            if self._ending.reason in ("client", "failed") and not leaves_open:
                await self._deliver_what_is_in_flight()
            await self._end_components()
        for component in self.components:
            component.kill()
        stuck = await self._wait_ended()
        if not leaves_open:
            self._answer_open_requests()
        self.flusher.flush()
        self._connection.close_writing()
        with trio.move_on_after(_LAST_BYTES) as patience:
            if self._stopping.cancel_called:
                patience.cancel()
            while not self._connection.closed:
                await self.flusher.wait_room()
        if stuck:
            log.error("components ignore their end", components=stuck)
            if self.abandon is not None:
                self.abandon(self._ending)

    async def _wait_ended(self) -> list[str]:
        """Wait for the end of what was killed; returns the names of what goes on nevertheless.

        That can only be plugins: a shielded task, a thread, a `Cancelled` that is caught.
        """
        left = list(self.components)

        async def wait(component: Component) -> None:
            await component.wait_ended()
            left.remove(component)

        seconds = _AT_ONCE if self._stopping.cancel_called else _LAST_MOMENT
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for component in self.components:
                    nursery.start_soon(wait, component)
        return [component.name for component in left]

    async def _deliver_what_is_in_flight(self) -> None:
        """The client sends nothing more, but may read: requests of its own are still answered.

        After a loss, too: proxies that are processes pass on the error that names the component.
        """
        with trio.move_on_after(self.stop_timeout):
            while self._connection.unanswered() and not self._connection.closed:
                if self.transport.deaf():
                    return
                with trio.move_on_after(_LOOK_AGAIN):
                    await self.flusher.wait_flushed()

    async def _end_components(self) -> None:
        """From the client to the agent: each gets what its predecessor still had to say, if that
        does not take too long. From then on each has its own time."""
        async with trio.open_nursery() as nursery:
            components = iter(list(self.components))
            with trio.move_on_after(self.stop_timeout / 2):
                for component in components:
                    component.close_input()
                    nursery.start_soon(self._end_component, component)
                    await component.wait_finished()
            for component in components:
                component.close_input()
                nursery.start_soon(self._end_component, component)

    async def _end_component(self, component: Component) -> None:
        """What does not end by itself is asked to (SIGTERM), then made to (SIGKILL)."""
        seconds = min(component.stop_timeout, self.stop_timeout)
        for insist in (component.terminate, component.kill):
            with trio.move_on_after(seconds):
                await component.wait_finished()
                await component.wait_ended()
                return
            insist()

    def _answer_open_requests(self) -> None:
        """Nobody is left to answer: every request that is still open is answered here."""
        ending = self._ending
        if ending is not None and ending.error is not None:
            ending.error.is_last = True
            failure = Failure.of(ending.error)
        else:
            error = encode_error(INTERNAL_ERROR, "The chain ended before this was answered")
            failure = Failure.plain(error)
        for call in self._connection.unanswered():
            self._connection.respond(call, None, failure.answer(call.method, delivered=True))

    def _report(self, event: str, detail: str) -> None:
        log.warning(event, sender="client", detail=detail)


def _has_refused(component: Component) -> bool:
    """Whether a component answered its initialization with an error of its own."""
    initialization = getattr(component, "initialization", None)
    return initialization is not None and initialization.refused


def _link_past(component: Component) -> None:
    """Make the neighbours of a proxy neighbours of each other."""
    assert component.agent_side is not None
    link(component.client_side.neighbour, component.agent_side.neighbour)
