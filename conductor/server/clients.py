"""Remote clients: each has an id, a device and a chain, independent of the network it uses.

The chain has one end of a memory pair, the network the other (`lines`). A client is *attached*
while at least one socket or request relays its lines. When the last one ends without a close, the
client is *detached*: its chain runs on for `ServerTimeouts.keep` seconds, so that it can reconnect.
Time in which this server did not read does not count: the client may have reconnected already.
Lines taken by a lost socket and not delivered stay in `unsent` for the next one.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Final, Literal

import attrs
import trio

from conductor.acp.turns import Turns
from conductor.background_tasks import background_tasks
from conductor.chain.chain import Chain
from conductor.chain.shutdown import Ending
from conductor.errors import exception_location, withhold_details
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.log import get_logger
from conductor.network.resumable_stream import ResumableStream
from conductor.server.access import Refusal
from conductor.server.limits import ServerLimits, ServerTimeouts
from conductor.transport.base import Transport
from conductor.transport.memory import LineChannel, memory_pair

__all__ = ["ClientRegistry", "Device", "RemoteClient"]

_REAP_INTERVAL: Final = 1.0
"""Seconds between checks for expired clients."""

_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the last messages to be acknowledged, and for sockets to deliver the close."""
_POLL_INTERVAL: Final = 0.1

log: Final = get_logger(component="server")


@attrs.frozen
class Device:
    """The opener of a connection."""

    token: str
    """Name of its token; empty without one."""
    address: str

    @property
    def label(self) -> str:
        """Its name in logs and in `ps`."""
        return self.token or self.address


@attrs.define(eq=False)
class RemoteClient:
    """One remote client and its chain."""

    number: int
    """Identifies the client in logs; `id` is a secret."""
    id: str = attrs.field(repr=False)
    device: Device
    profile: Literal["websocket", "http", "unix"]
    lines: LineChannel
    chain: Chain
    turns: Turns[InFlightRequest]
    """The turns of its sessions, as far as it has been told."""
    attachments: int = attrs.field(default=0, init=False)
    detached_since: float | None = attrs.field(factory=trio.current_time, init=False)
    """Time of its detachment (trio clock); `None` while attached."""
    unheard: float = attrs.field(default=0.0, init=False)
    """Seconds of its detachment in which this server did not read what the client may have sent."""
    detached: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set while detached."""
    last_activity: float = attrs.field(factory=trio.current_time, init=False)
    unsent: deque[bytes] = attrs.field(factory=deque, init=False)
    """Lines of the agent that were taken and not delivered."""
    resumable_stream: ResumableStream | None = attrs.field(default=None, init=False)
    """For a client that is a conductor: its resumable stream."""
    relay_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancels the relay over the current WebSocket."""
    runs_detached: bool = attrs.field(default=False, init=False)
    """The chain runs on without the client."""
    is_ending: bool = attrs.field(default=False, init=False)
    ending: Ending | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def attached(self) -> bool:
        return self.attachments > 0

    @property
    def busy(self) -> bool:
        """Whether a turn is running, the agent works in the background, or a request of the client
        is in flight."""
        connection = self.chain.client.connection
        is_asked = connection is not None and bool(connection.unanswered())
        if is_asked or not self.attached:
            return is_asked
        return any(each.is_open for each in self.turns.sessions.values())

    @property
    def running_turns(self) -> int:
        """How many sessions have a running turn."""
        return sum(each.is_running for each in self.turns.sessions.values())

    def has_session(self, session: str) -> bool:
        """Whether this session is open on this connection."""
        return session in self.chain.client.session_log.sessions

    @contextmanager
    def attachment(self) -> Iterator[None]:
        """Attached during the block."""
        self.attachments += 1
        self.detached_since = None
        if self.detached.is_set():
            self.detached = trio.Event()
        try:
            yield
        finally:
            self.attachments -= 1
            if not self.attachments:
                self.detached_since, self.unheard = trio.current_time(), 0.0
                self.detached.set()

    def detach(self) -> None:
        """Handle the loss of its socket: the chain runs on without the client, if it can.

        A resumable stream needs nothing: its lines wait for the next socket.
        """
        if self.resumable_stream is not None:
            return
        unread = b"".join([line + b"\n" for line in self.unsent]) + self.lines.take_rest()
        self.unsent.clear()
        self.runs_detached = self.chain.client_end.detach(unread)
        self.lines.close()

    def reattach(self) -> None:
        """Connect the chain to a new memory pair after `detach`."""
        theirs, ours = memory_pair()
        self.lines = LineChannel(ours)
        self.runs_detached = False
        self.chain.client_end.reattach(theirs)

    def record_activity(self) -> None:
        """Record a message in either direction."""
        self.last_activity = trio.current_time()

    def end(self) -> None:
        """Stop the chain in order; its last messages are delivered if the client is attached."""
        self.is_ending = True
        self.chain.stop()
        if not self.attached:
            self.lines.close()


@attrs.define(eq=False)
class ClientRegistry:
    """All clients of a server, by id."""

    make_chain: Callable[[Transport], Chain]
    limits: ServerLimits = attrs.field(factory=ServerLimits)
    timeouts: ServerTimeouts = attrs.field(factory=ServerTimeouts)
    turn_ended: Callable[[str | None], None] = attrs.field(default=lambda reason: None, init=False)
    """Called when a turn of version 2 has ended, with its stop reason."""
    draining: bool = attrs.field(default=False, init=False)
    by_id: dict[str, RemoteClient] = attrs.field(factory=dict, init=False)
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    """By address."""
    _last_number: int = attrs.field(default=0, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClientRegistry]:
        """Serve clients during the block; then stop their chains in order."""
        async with background_tasks() as watchers, trio.open_nursery() as nursery:
            self._nursery = nursery
            watchers.start_soon(self._reap_idle)
            try:
                yield self
            finally:
                for client in list(self.by_id.values()):
                    client.end()

    @property
    def ready(self) -> bool:
        """Whether a new client would be admitted."""
        return not self.draining and (len(self.by_id) < self.limits.clients or self._any_detached())

    def admit(
        self, device: Device, profile: Literal["websocket", "http", "unix"]
    ) -> RemoteClient | Refusal:
        """Create a client with its chain, or refuse it (limits, draining)."""
        if self.draining:
            return Refusal(503, "the server is shutting down", (("retry-after", "5"),))
        if self._counts[device.address] >= self.limits.clients_each:
            return Refusal(429, "too many connections of one address", (("retry-after", "5"),))
        if len(self.by_id) >= self.limits.clients and not self._make_room():
            return Refusal(503, "too many clients", (("retry-after", "5"),))
        theirs, ours = memory_pair()
        self._last_number += 1
        chain = self.make_chain(theirs)
        observer = chain.turn_observer()
        observer.turn_ended = lambda ended: self.turn_ended(ended.stop_reason)
        client = RemoteClient(
            number=self._last_number,
            id=secrets.token_urlsafe(24),
            device=device,
            profile=profile,
            lines=LineChannel(ours),
            chain=chain,
            turns=observer.turns,
        )
        client.chain.client_end.label = device.label
        self.by_id[client.id] = client
        self._counts[device.address] += 1
        self._nursery.start_soon(self._run, client)
        log.info("client connected", client=client.number, profile=profile, device=device.label)
        return client

    def find(self, id: str | None) -> RemoteClient | None:
        """The client with this id, which is a secret."""
        return self.by_id.get(id) if id is not None else None

    async def drain(self) -> None:
        """Refuse new clients, wait for turns to finish, then end every chain in order.

        A client without a running turn or an open request is ended at once; after `timeouts.drain`
        seconds all are. Returns when all chains have ended.
        """
        self.draining = True
        with trio.move_on_after(self.timeouts.drain):
            while self.by_id:
                for client in list(self.by_id.values()):
                    if not client.busy:
                        client.end()
                await trio.sleep(_POLL_INTERVAL)
        left = list(self.by_id.values())
        for client in left:
            client.end()
        for client in left:
            await client.ended.wait()
        with trio.move_on_after(_CLOSE_TIMEOUT):
            for client in left:
                await client.detached.wait()

    def kill(self) -> None:
        """End every chain now: its processes are killed and its lines are dropped."""
        self.draining = True
        for client in list(self.by_id.values()):
            client.chain.kill()
            client.lines.close()

    async def _run(self, client: RemoteClient) -> None:
        try:
            async with background_tasks() as nursery:
                if client.resumable_stream is not None:
                    nursery.start_soon(client.resumable_stream.run)
                with nullcontext() if client.profile == "unix" else withhold_details():
                    client.ending = await client.chain.run()
                client.chain.client_end.transport.close_writing()
                if client.resumable_stream is not None:
                    with trio.move_on_after(_CLOSE_TIMEOUT):
                        await client.resumable_stream.wait_drained()
        except Exception as exc:  # other clients are not affected
            log.error("chain crashed", client=client.number, **exception_location(exc))
            client.chain.client_end.transport.close()  # the client waits for an answer
        finally:
            del self.by_id[client.id]
            self._counts[client.device.address] -= 1
            if not self._counts[client.device.address]:
                del self._counts[client.device.address]
            client.ended.set()
        reason = client.ending.reason if client.ending is not None else "crashed"
        log.info("client disconnected", client=client.number, reason=reason)

    async def _reap_idle(self) -> None:
        """End clients that are detached or idle for too long."""
        interval = min(_REAP_INTERVAL, self.timeouts.keep / 4)
        while True:
            due = trio.current_time() + interval
            await trio.sleep_until(due)
            self._add_unheard(late=trio.current_time() - due)
            self._end_idle()

    def _add_unheard(self, late: float) -> None:
        """Add the seconds by which the event loop was `late` (blocked, or without a CPU) to
        `unheard` of detached clients."""
        for client in self.by_id.values():
            if client.detached_since is not None:
                client.unheard += late

    def _end_idle(self) -> None:
        now = trio.current_time()
        for client in list(self.by_id.values()):
            away = 0.0
            if client.detached_since is not None:
                away = now - client.detached_since - client.unheard
            silent = now - client.last_activity > self.timeouts.idle and not client.busy
            if away > self._keep(client) or silent:
                if not client.is_ending:
                    log.info("unused client ended", client=client.number, detached=round(away, 1))
                client.end()

    def _keep(self, client: RemoteClient) -> float:
        """Seconds to keep a detached client; shorter before it has initialized."""
        if client.chain.initialized.is_set():
            return self.timeouts.keep
        return min(self.timeouts.keep, self.timeouts.headers)

    def _any_detached(self) -> bool:
        return any(not client.attached for client in self.by_id.values())

    def _make_room(self) -> bool:
        """End the longest detached client; whether there is one."""
        cut = [
            (client.detached_since, client.number, client)
            for client in self.by_id.values()
            if client.detached_since is not None and not client.is_ending
        ]
        if not cut:
            return False
        min(cut)[2].end()
        return True
