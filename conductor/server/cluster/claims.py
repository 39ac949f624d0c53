"""Session claims that all nodes share in Redis: which principals may load or delete a session.

- `acp-conductor:owners:<digest of the session's id>`: a set of hashes, one per principal. It
  expires `_TTL` after the last write; a node that has the record writes it again well before.
- `acp-conductor:claims`: `id`, which changes when Redis loses its data, and `from`, the time (of
  Redis's clock, in ms) from which the claims are complete. A node that finds another `id` than
  before writes all of its records again. Until `from`, the owner of a session without a claim is
  unknown.

Check and claim are one script: of two principals who load the same session at two nodes, one is
refused.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

if TYPE_CHECKING:
    from coredis import Redis

__all__ = ["Record", "SharedClaims", "Verdict"]

Record: TypeAlias = tuple[bytes, str]
"""Digest of a session id, and a principal."""
Verdict: TypeAlias = Literal["unknown", "theirs", "ours", "free"]

_STATE: Final = "acp-conductor:claims"
_OWNERS: Final = "acp-conductor:owners"
_TTL: Final = 7 * 86400.0
"""Seconds until a claim expires after the last write."""
_BATCH: Final = 200

_NOW: Final = "local t = redis.call('time') local now = t[1] * 1000 + math.floor(t[2] / 1000) "
_MEET: Final = (
    _NOW
    + """
local known, fresh, settling = ARGV[1], ARGV[2], tonumber(ARGV[3])
local found = redis.call('hget', KEYS[1], 'id')
if found and (known == '' or known == found) then return found end
if not found then
  redis.call('hset', KEYS[1], 'id', fresh)
  found = fresh
end
redis.call('hset', KEYS[1], 'from', known == '' and now or now + settling)
return found
"""
)
"""Returns `id`. If the caller knew another one, the claims are incomplete until `from`."""
_LOOK_UP: Final = (
    _NOW
    + """
local from = redis.call('hget', KEYS[1], 'from')
local verdicts = {}
for i = 1, #ARGV do
  local owners = KEYS[i + 1]
  if redis.call('sismember', owners, ARGV[i]) == 1 then verdicts[i] = 'ours'
  elseif redis.call('exists', owners) == 1 then verdicts[i] = 'theirs'
  elseif not from or now < tonumber(from) then verdicts[i] = 'unknown'
  else verdicts[i] = 'free' end
end
return verdicts
"""
)
_CLAIM: Final = (
    _LOOK_UP.replace("return verdicts", "").replace("#ARGV", "1")
    + """
if verdicts[1] == 'free' then
  redis.call('sadd', KEYS[2], ARGV[1])
  redis.call('pexpire', KEYS[2], ARGV[2])
end
return verdicts
"""
)


@attrs.define(eq=False)
class SharedClaims:
    """Claims of one node. Methods that ask Redis raise the errors of coredis."""

    records: Callable[[], Iterable[Record]] = attrs.field(default=tuple)
    """All records of this node, to write again when Redis has lost its data."""
    settling: float = 15.0
    """Seconds until all nodes have rewritten their records after a data loss in Redis."""
    is_stale: bool = attrs.field(default=False, init=False)
    """Whether records may be missing in Redis."""
    _id: str = attrs.field(default="", init=False)
    _written: float = attrs.field(default=-math.inf, init=False)

    async def check_for_data_loss(self, redis: Redis[str]) -> None:
        """Check, at each heartbeat, whether Redis has lost its data or claims expire soon."""
        known = self._id or ("none" if any(True for _ in self.records()) else "")
        args: list[Any] = [known, secrets.token_hex(8), round(self.settling * 1000)]
        found = str(await redis.eval(_MEET, [_STATE], args))
        is_old = trio.current_time() - self._written > _TTL / 8
        self.is_stale |= is_old or bool(self._id and self._id != found)
        self._id = found

    def stale_batches(self) -> Iterable[Sequence[Record]]:
        """Batches of records to write if `is_stale`, which is reset."""
        records = list(self.records()) if self.is_stale else []
        self._written = trio.current_time() if self.is_stale else self._written
        self.is_stale = False
        return (records[start : start + _BATCH] for start in range(0, len(records), _BATCH))

    async def write(self, redis: Redis[str], records: Iterable[Record]) -> None:
        async with redis.pipeline(transaction=False) as pipeline:
            for session, principal in records:
                pipeline.sadd(_key(session), [_member(session, principal)])
                pipeline.pexpire(_key(session), _expiry())

    async def withdraw(self, redis: Redis[str], record: Record) -> None:
        session, principal = record
        await redis.srem(_key(session), [_member(session, principal)])

    async def claim(self, redis: Redis[str], record: Record) -> Verdict:
        """Claim a session if it is free; return the verdict before the claim."""
        session, principal = record
        args: list[Any] = [_member(session, principal), _expiry()]
        verdicts: Any = await redis.eval(_CLAIM, [_STATE, _key(session)], args)
        verdict: Verdict = verdicts[0]
        return verdict

    async def look_up(self, redis: Redis[str], records: Sequence[Record]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for start in range(0, len(records), _BATCH):
            batch = records[start : start + _BATCH]
            keys = [_STATE, *(_key(session) for session, _ in batch)]
            args = [_member(session, principal) for session, principal in batch]
            answer: Any = await redis.eval(_LOOK_UP, keys, args)
            verdicts += answer
        return verdicts


def _expiry() -> int:
    return round(_TTL * 1000)


def _key(session: bytes) -> str:
    return f"{_OWNERS}:{session.hex()}"


def _member(session: bytes, principal: str) -> str:
    # Includes the session: hashes do not reveal that two sessions have the same principal.
    return hashlib.sha256(session + principal.encode("utf-8", "surrogatepass")).hexdigest()[:32]
