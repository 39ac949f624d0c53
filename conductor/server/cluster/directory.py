"""Session directory: which node has which connection and session; shared in Redis.

A load balancer routes a client by its cookie. A client without a valid cookie may reach a process
(a *node*) that has neither its connection nor its session; that node looks up the owner. Keys:

- `acp-conductor:node:<node>`: the URL of a node, renewed by its heartbeat;
- `acp-conductor:connection:<hash>`: the node that has the connection;
- `acp-conductor:session:<hash>`: the node that has this principal's session;
- the principals of each session (`claims`).

Ids are stored as hashes, principals only within the hash of a session, credentials never.

A node writes all its entries with every heartbeat: after an outage or a data loss, Redis is correct
again one heartbeat later. A Redis that may evict keys is not used: at the start it is an error,
later new sessions and those of other nodes are refused, until it evicts none.

Clients wait for Redis when they look up what this node does not have, and until a new connection or
session is published, for at most `lookup_timeout` per batch of writes; while Redis is unreachable,
nodes work as if there were no directory.

coredis, because it runs on trio (through anyio): a slow lookup can be cancelled. redis-py has no
trio client; in threads, a hanging Redis would exhaust the threads.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from conductor.log import get_logger
from conductor.redaction import register_secrets
from conductor.server.cluster.claims import SharedClaims
from conductor.server.cluster.eviction import RedisEvicts, eviction_policy

if TYPE_CHECKING:
    from coredis import Redis

__all__ = ["RedisUnreachable", "SessionDirectory"]

T = TypeVar("T")

_PREFIX: Final = "acp-conductor"
_BATCH: Final = 500
"""Keys per pipeline: lookups run between the batches of a heartbeat with thousands of keys."""
_DELETE_IF_OWN: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"
)
"""Deletes a key only if it names this node: another node may have the session by now."""

_LEASES_OF_ENTRIES: Final = 3
"""Entries outlive the node's own key: of a node that is only slow, they are still there."""

log: Final = get_logger(component="directory")


class RedisUnreachable(Exception):
    """Redis is unreachable."""


@attrs.define(eq=False)
class SessionDirectory:
    """The directory as seen by one node, and the entries of the node while `run` runs."""

    url: str = attrs.field(repr=False)
    """`redis://`, `rediss://` or `unix://`; may hold a password."""
    advertise: str
    """URL of this node for the other nodes, and for clients that are sent here."""
    lease: float = 15.0
    """Seconds after its last heartbeat until a node counts as dead."""
    lookup_timeout: float = 0.5
    """Seconds for a lookup."""
    allow_eviction: bool = False
    """Use a Redis that may evict keys."""
    claims: SharedClaims = attrs.field(
        default=attrs.Factory(lambda self: SharedClaims(settling=self.lease), takes_self=True),
        init=False,
    )
    unreachable: bool = attrs.field(default=False, init=False)
    """Whether the last request to Redis failed."""
    _node: str = attrs.field(factory=lambda: secrets.token_hex(8), init=False)
    _own_keys: Counter[str] = attrs.field(factory=Counter, init=False)
    """Keys with use counts: two connections of one principal may load the same session."""
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _next: _PendingChanges = attrs.field(factory=lambda: _PendingChanges(), init=False)
    _writing: _PendingChanges = attrs.field(factory=lambda: _PendingChanges(), init=False)
    _evicts: str | None = attrs.field(default=None, init=False)
    """The policy by which Redis may evict claims, when last asked."""
    _redis: Redis[str] | None = attrs.field(default=None, init=False)

    @property
    def can_record(self) -> bool:
        """Whether claims can be stored: Redis is reachable and keeps them."""
        return not self.unreachable and (self._evicts is None or self.allow_eviction)

    async def check_at_start(self) -> None:
        """Raise `RedisEvicts` if Redis may evict claims, and that is not allowed. A Redis that is
        unreachable is checked later."""
        async with _redis_client(self.url, self.lookup_timeout) as redis:
            await self._check_eviction(redis)
        if self._evicts is not None and not self.allow_eviction:
            raise RedisEvicts(self._evicts)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew the entries until cancelled, then delete them.

        `task_status.started()` is called after the first heartbeat, successful or not.
        """
        password = urlsplit(self.url).password
        register_secrets([password] if password else [])
        try:
            async with _redis_client(self.url, self.lookup_timeout) as self._redis:
                await self._send_heartbeat()
                task_status.started()
                while True:
                    with trio.move_on_after(self.lease / 3) as heartbeat:
                        await self._changed.wait()
                    if heartbeat.cancelled_caught:
                        await self._send_heartbeat()
                    else:
                        await self._write_changes()
        finally:
            self._redis = None
            self._writing.written.set()
            self._next.written.set()
            with trio.CancelScope(shield=True):
                await self._delete_own_keys()

    def connection_opened(self, connection_id: str) -> None:
        self._add_key(_connection_key(connection_id))

    def connection_closed(self, connection_id: str) -> None:
        self._remove_key(_connection_key(connection_id))

    def session_opened(self, principal: str | None, session_id: str) -> None:
        self._add_key(_session_key(principal, session_id))

    def session_closed(self, principal: str | None, session_id: str) -> None:
        self._remove_key(_session_key(principal, session_id))

    async def wait_published(self) -> None:
        """Wait until all entries added so far are in Redis, or it is unreachable.

        Needed before a client learns an id: its next request may reach any node.
        """
        if self._redis is not None and not self.unreachable:
            await (self._next if self._next.keys else self._writing).written.wait()

    async def owner_of_connection(self, connection_id: str) -> str | None:
        """URL of the live node that has it; `None`: no node, this one, or Redis is unreachable."""
        return await self._owner(_connection_key(connection_id))

    async def owner_of_session(self, principal: str | None, session_id: str) -> str | None:
        """URL of the live node that has this session of the principal; `None` as for a
        connection."""
        return await self._owner(_session_key(principal, session_id))

    async def ask(self, question: Callable[[Redis[str]], Awaitable[T]]) -> T:
        """Run a query. Raises `RedisUnreachable` if Redis is unreachable, or may evict claims."""
        if self._redis is not None and self.can_record:
            with self._guarded_redis():
                return await question(self._redis)
        raise RedisUnreachable

    async def _owner(self, key: str) -> str | None:
        if self._redis is None or self.unreachable or key in self._own_keys:
            return None
        with self._guarded_redis():
            node = await self._redis.get(key)
            if node is not None and node != self._node:
                return await self._redis.get(_node_key(node))
        return None

    def _add_key(self, key: str) -> None:
        self._own_keys[key] += 1
        self._mark_changed(key)

    def _remove_key(self, key: str) -> None:
        self._own_keys[key] -= 1
        if self._own_keys[key] <= 0:
            del self._own_keys[key]
            self._mark_changed(key)

    def _mark_changed(self, key: str) -> None:
        self._next.keys.add(key)
        if not self.unreachable:
            self._changed.set()

    async def _send_heartbeat(self) -> None:
        assert self._redis is not None
        with self._guarded_redis():
            await self._redis.set(_node_key(self._node), self.advertise, px=int(self.lease * 1000))
            if self.unreachable:
                self.unreachable = False
                log.info("Redis reachable again")
        await self._check_eviction(self._redis)
        await self._write_claims()
        await self._write_changes(self._own_keys)

    async def _check_eviction(self, redis: Redis[str]) -> None:
        """Update `_evicts`; a change is logged."""
        if self.unreachable:
            return
        before = self._evicts
        with self._guarded_redis():
            self._evicts = await eviction_policy(redis)
        if self._evicts is not None and before is None:
            log.warning(
                "Redis may evict the owners of sessions: set maxmemory-policy noeviction",
                policy=self._evicts,
                used=self.allow_eviction,
            )
        elif before is not None and self._evicts is None:
            log.info("Redis evicts no owners of sessions any more")

    async def _write_claims(self) -> None:
        """Write the claims that Redis has lost or that expire soon."""
        try:
            await self.ask(self.claims.check_for_data_loss)
            for batch in self.claims.stale_batches():
                await self.ask(partial(self.claims.write, records=batch))
        except RedisUnreachable:
            self.claims.is_stale = True

    async def _write_changes(self, more: Iterable[str] = ()) -> None:
        self._writing, self._next, self._changed = self._next, _PendingChanges(), trio.Event()
        await self._write({*self._writing.keys, *more})
        self._writing.written.set()

    async def _write(self, keys: Iterable[str]) -> None:
        """Set or delete these keys. After a failure they expire, or are written again."""
        left = list(keys)
        while left and not self.unreachable and self._redis is not None:
            batch, left = left[:_BATCH], left[_BATCH:]
            with self._guarded_redis():
                await self._write_batch(self._redis, batch)

    async def _write_batch(self, redis: Redis[str], keys: list[str]) -> None:
        async with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                if key in self._own_keys:
                    pipeline.set(key, self._node, px=int(self.lease * 1000 * _LEASES_OF_ENTRIES))
                else:
                    pipeline.eval(_DELETE_IF_OWN, [key], [self._node])

    async def _delete_own_keys(self) -> None:
        """Delete all entries, on a new connection: the others were cancelled with the task."""
        if self.unreachable:
            return
        left = [*self._own_keys, *self._writing.keys, *self._next.keys]
        self._own_keys.clear()
        async with _redis_client(self.url, self.lookup_timeout) as redis:
            with self._guarded_redis():
                await redis.delete([_node_key(self._node)])  # first: invalidates the others
                while left:
                    await self._write_batch(redis, left[:_BATCH])
                    left = left[_BATCH:]

    @contextmanager
    def _guarded_redis(self) -> Iterator[None]:
        """Limit requests to Redis in the block to `lookup_timeout`.

        A failure is suppressed and sets `unreachable`; the first is logged.
        """
        import anyio
        from coredis.exceptions import RedisError

        failures = (RedisError, OSError, trio.TooSlowError)
        cut = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
        try:
            with trio.fail_after(self.lookup_timeout):
                yield
        except (*failures, *cut) as exc:
            if not self.unreachable:
                self.unreachable = True
                error = str(exc) or type(exc).__name__
                log.warning("Redis unreachable: sessions of other nodes are not found", error=error)


@attrs.define(eq=False)
class _PendingChanges:
    """Added and removed keys; `written` is set when they are in Redis."""

    keys: set[str] = attrs.field(factory=set)
    written: trio.Event = attrs.field(factory=trio.Event)


def _redis_client(url: str, lookup_timeout: float) -> Redis[str]:
    import coredis
    from coredis.retry import NoRetryPolicy

    return coredis.Redis.from_url(
        url,
        decode_responses=True,
        connect_timeout=lookup_timeout,
        stream_timeout=lookup_timeout,
        retry_policy=NoRetryPolicy(),
    )


def _node_key(node: str) -> str:
    return f"{_PREFIX}:node:{node}"


def _connection_key(connection_id: str) -> str:
    return f"{_PREFIX}:connection:{_hash(connection_id)}"


def _session_key(principal: str | None, session_id: str) -> str:
    return f"{_PREFIX}:session:{_hash(principal, session_id)}"


def _hash(*parts: str | None) -> str:
    # JSON is unambiguous: different lists of parts have different encodings.
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
