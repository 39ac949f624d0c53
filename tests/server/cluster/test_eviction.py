"""A Redis that may evict the owners of sessions: a real one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.cluster import COREDIS_FORGETS, directory_at, evict, redis_url

from conductor.server.cluster.eviction import RedisEvicts

pytestmark = [pytest.mark.external, COREDIS_FORGETS]

A = "http://a.example:8765"


async def test_a_redis_that_may_evict_owners_of_sessions_is_refused_at_the_start(redis):
    """Sessions without an owner would be free for all principals."""
    evict(redis, "volatile-ttl")

    with pytest.raises(RedisEvicts, match="volatile-ttl"):
        await directory_at(redis, A).check_at_start()
    await directory_at(redis, A, allow_eviction=True).check_at_start()
    evict(redis, "noeviction")
    await directory_at(redis, A).check_at_start()


def test_serve_does_not_start_with_a_redis_that_evicts(redis, tmp_path):
    evict(redis, "allkeys-lru")
    (tmp_path / "chain.yaml").write_text("version: 1\nagent: {use: test-agent}\n")
    command = [sys.executable, "-m", "conductor", "serve", "chain.yaml"]
    listen = ["--listen", "127.0.0.1:0", "--advertise", A, "--sessions", redis_url(redis)]

    ended = subprocess.run(
        [*command, *listen], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 3
    assert "maxmemory-policy allkeys-lru" in ended.stderr
    assert "--allow-eviction" in ended.stderr
