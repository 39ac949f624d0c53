"""Whether Redis may evict keys: a session without its claim would be free for all principals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from conductor.log import get_logger

if TYPE_CHECKING:
    from coredis import Redis

__all__ = ["RedisEvicts", "eviction_policy"]

log: Final = get_logger(component="directory")


class RedisEvicts(Exception):
    """Redis may evict the claims of sessions."""

    def __init__(self, policy: str) -> None:
        super().__init__(
            f"Redis may evict the owners of sessions (maxmemory-policy {policy}): set "
            "maxmemory-policy noeviction; --allow-eviction uses it nevertheless"
        )


async def eviction_policy(redis: Redis[str]) -> str | None:
    """The policy by which Redis evicts keys; `None` if it evicts none, or refuses `INFO`."""
    from coredis.exceptions import ResponseError

    try:
        found: dict[str, Any] = dict(await redis.info("memory"))
    except ResponseError as exc:  # an access control list
        log.debug("Redis does not tell whether it evicts keys", error=str(exc))
        return None
    policy = str(found.get("maxmemory_policy", "noeviction"))
    return policy if found.get("maxmemory") and policy != "noeviction" else None
