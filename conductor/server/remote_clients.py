"""Remote clients: each has an id, an owner and a chain of its own, whatever network it comes by.

The network is a pump on the far side of a memory pair: `lines` is the network's end, the chain has
the other and never knows. A client is *attached* while something carries its lines; when the last
carrier is gone without a goodbye it is *cut off*, and its chain goes on for a while so that it may
return. What an ended carrier took and could not deliver waits in `unsent`, for the next one.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Final, Literal

import attrs
import trio

from conductor.chain import Chain, Ending
from conductor.endpoint import background
from conductor.errors import withhold_details
from conductor.log import get_logger
from conductor.remote.carrying import Carrier
from conductor.server.access import Refusal
from conductor.server.bounds import Bounds, Patience
from conductor.server.directory import Directory
from conductor.server.failures import place_of
from conductor.server.owning import Owners, guard
from conductor.server.shares import PAYER, Payer, Shares
from conductor.server.turns import WatchedLines
from conductor.transport.base import Transport
from conductor.transport.memory import memory_pair

__all__ = ["Owner", "RemoteClient", "RemoteClients"]

_LOOK: Final = 1.0
"""Seconds between looks at who has been away, or silent, for too long."""

_GOODBYE: Final = 2.0
"""Seconds for what carries clients to bring them the end."""

log = get_logger(component="server")


@attrs.frozen
class Owner:
    """Who opened a connection: only they can name its id."""

    principal: str
    """Empty: nobody was asked."""
    address: str

    @property
    def counted_as(self) -> str:
        return self.principal or self.address


@attrs.define(eq=False)
class RemoteClient:
    """One remote client and its chain."""

    number: int
    """For logs: the id is a secret."""
    id: str = attrs.field(repr=False)
    owner: Owner
    profile: Literal["websocket", "http", "unix"]
    lines: WatchedLines
    chain: Chain
    carriers: int = attrs.field(default=0, init=False)
    cut_since: float | None = attrs.field(factory=trio.current_time, init=False)
    """Since when nothing has carried its lines; None while it is attached."""
    detached: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set while nothing carries its lines."""
    last_heard: float = attrs.field(factory=trio.current_time, init=False)
    unsent: deque[bytes] = attrs.field(factory=deque, init=False)
    """Lines of the agent that were taken and not delivered."""
    carrier: Carrier | None = attrs.field(default=None, init=False)
    """For a client of ours, which has everything numbered."""
    carrying: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Ends whatever carries its lines over a WebSocket."""
    parked: bool = attrs.field(default=False, init=False)
    """Its chain goes on without it."""
    ending: Ending | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def attached(self) -> bool:
        return self.carriers > 0

    @property
    def busy(self) -> bool:
        """Whether a turn runs, or any request of the client is open."""
        connection = self.chain.client.connection
        is_asked = connection is not None and bool(connection.unanswered())
        return is_asked or (self.attached and bool(self.lines.running))

    def has_session(self, session: str) -> bool:
        """Whether this session was set up over this connection, and not closed since."""
        return session in self.chain.client.recollection.sessions

    @contextmanager
    def carried(self) -> Iterator[None]:
        """Attached for as long as the block lasts."""
        self.carriers += 1
        self.cut_since = None
        if self.detached.is_set():
            self.detached = trio.Event()
        try:
            yield
        finally:
            self.carriers -= 1
            if not self.carriers:
                self.cut_since = trio.current_time()
                self.detached.set()

    def cut_off(self) -> None:
        """Nothing carries its lines any more, and it said no goodbye: have its chain go on without
        it, if that can be."""
        if self.carrier is not None:
            return  # what is numbered waits for it
        unread = b"".join([line + b"\n" for line in self.unsent]) + self.lines.take_rest()
        self.unsent.clear()
        self.parked = self.chain.park(unread)
        self.lines.close()

    def come_back(self) -> None:
        """It is there again: its chain goes on with it."""
        theirs, ours = memory_pair()
        lines = self.lines
        self.lines = WatchedLines(ours, running=lines.running, turn=lines.turn)
        self.parked = False
        self.chain.take_back(theirs)

    def heard(self) -> None:
        """Something was said, by either side."""
        self.last_heard = trio.current_time()

    def end(self) -> None:
        """End the chain in order; what it still has to say is for a carrier, if there is one."""
        self.chain.stop()
        if not self.attached:
            self.lines.close()


@attrs.define(eq=False)
class RemoteClients:
    """All of them, by id."""

    make_chain: Callable[[Transport], Chain]
    bounds: Bounds = attrs.field(factory=Bounds)
    patience: Patience = attrs.field(factory=Patience)
    shares: Shares = attrs.field(factory=Shares)
    directory: Directory | None = None
    """Where the other nodes look up what is here."""
    draining: bool = attrs.field(default=False, init=False)
    by_id: dict[str, RemoteClient] = attrs.field(factory=dict, init=False)
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _owners: Owners = attrs.field(
        default=attrs.Factory(lambda self: Owners(self.bounds.sessions_each), takes_self=True),
        init=False,
    )
    _last_number: int = attrs.field(default=0, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        if self.directory is not None:
            self.directory.claims.records = self._owners.records

    @asynccontextmanager
    async def open(self) -> AsyncIterator[RemoteClients]:
        """Serve clients for as long as the block lasts; then their chains end in order."""
        async with background() as looking, trio.open_nursery() as nursery:
            self._nursery = nursery
            looking.start_soon(self._look)
            try:
                yield self
            finally:
                for client in list(self.by_id.values()):
                    client.end()

    @property
    def ready(self) -> bool:
        return not self.draining and (len(self.by_id) < self.bounds.clients or self._any_cut())

    def admit(
        self, owner: Owner, profile: Literal["websocket", "http", "unix"]
    ) -> RemoteClient | Refusal:
        """A new client with a chain of its own, or why there is none."""
        if self.draining:
            return Refusal(503, "the server is about to end", (("retry-after", "5"),))
        if self._counts[owner.counted_as] >= self.bounds.clients_each:
            return Refusal(429, "too many connections of one client", (("retry-after", "5"),))
        if len(self.by_id) >= self.bounds.clients and not self._end_longest_cut():
            return Refusal(503, "too many clients", (("retry-after", "5"),))
        account = self.shares.account(owner.counted_as)
        theirs, ours = memory_pair()
        self._last_number += 1
        client = RemoteClient(
            number=self._last_number,
            id=secrets.token_urlsafe(24),
            owner=owner,
            profile=profile,
            lines=WatchedLines(ours, turn=partial(self.shares.turn, account)),
            chain=self.make_chain(theirs),
        )
        if self.directory is not None:
            from conductor.server.registrar import registering

            self.directory.connection_opened(client.id)
            make, principal = client.chain.make, owner.principal
            client.chain.make = registering(make, self.directory, principal)
        if owner.principal:
            guard(client.chain, self._owners, owner.principal, self.directory)
        self.by_id[client.id] = client
        self._counts[owner.counted_as] += 1
        self._nursery.start_soon(self._run, client)
        log.info("client connected", client=client.number, profile=profile, owner=owner.counted_as)
        return client

    def find(self, id: str | None, principal: str) -> RemoteClient | None:
        """The client with this id, if it is this principal's."""
        client = self.by_id.get(id) if id is not None else None
        return client if client is not None and client.owner.principal == principal else None

    async def drain(self) -> None:
        """Take no new clients, let turns end, then end every chain. Returns when all have ended."""
        self.draining = True
        with trio.move_on_after(self.patience.drain):
            while self.by_id:
                for client in list(self.by_id.values()):
                    if not client.busy:
                        client.end()
                await trio.sleep(0.1)
        left = list(self.by_id.values())
        for client in left:
            client.end()
        for client in left:
            await client.ended.wait()
        with trio.move_on_after(_GOODBYE):
            for client in left:
                await client.detached.wait()

    def kill(self) -> None:
        """End every chain at once."""
        self.draining = True
        for client in list(self.by_id.values()):
            client.chain.kill()
            client.lines.close()

    async def _run(self, client: RemoteClient) -> None:
        PAYER.set(Payer(self.shares.account(client.owner.counted_as)))
        try:
            async with background() as nursery:
                if client.carrier is not None:
                    nursery.start_soon(client.carrier.run)
                with nullcontext() if client.profile == "unix" else withhold_details():
                    client.ending = await client.chain.run()
                client.chain.transport.close_writing()
                if client.carrier is not None:
                    with trio.move_on_after(_GOODBYE):
                        await client.carrier.wait_drained()
        except Exception as exc:  # one client's chain is no other's business
            log.error("a chain crashed", client=client.number, **place_of(exc))
        finally:
            del self.by_id[client.id]
            if self.directory is not None:
                self.directory.connection_closed(client.id)
            self._counts[client.owner.counted_as] -= 1
            if not self._counts[client.owner.counted_as]:
                del self._counts[client.owner.counted_as]
            client.ended.set()
        reason = client.ending.reason if client.ending is not None else "crashed"
        log.info("client gone", client=client.number, reason=reason)

    async def _look(self) -> None:
        """End the chains of those who are cut off, or silent, for too long."""
        while True:
            await trio.sleep(min(_LOOK, self.patience.keep / 4))
            now = trio.current_time()
            for client in list(self.by_id.values()):
                away = client.cut_since is not None and now - client.cut_since > self._keep(client)
                silent = now - client.last_heard > self.patience.idle and not client.busy
                if away or silent:
                    client.end()

    def _keep(self, client: RemoteClient) -> float:
        """Who has not even initialized has nothing to return to."""
        if client.chain.initialized.is_set():
            return self.patience.keep
        return min(self.patience.keep, self.patience.headers)

    def _any_cut(self) -> bool:
        return any(not client.attached for client in self.by_id.values())

    def _end_longest_cut(self) -> bool:
        """Make room: whoever is away longest has to go."""
        cut = [(c.cut_since, c.number, c) for c in self.by_id.values() if c.cut_since is not None]
        if not cut:
            return False
        min(cut)[2].end()
        return True
