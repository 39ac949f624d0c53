"""The commands of Redis that the session directory uses, in memory; its Lua scripts really run."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import lupa


class MemoryRedis:
    """One data set for all nodes. Keys do not expire."""

    port = 0

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self._lua = lupa.LuaRuntime()

    @asynccontextmanager
    async def client(self, url: str, lookup_timeout: float) -> AsyncIterator[Commands]:
        """What the directory opens instead of a client of coredis."""
        yield Commands(self)

    def call(self, command: str, key: str = "", *args: Any) -> Any:
        match command.lower():
            case "time":
                seconds, fraction = divmod(time.time(), 1)
                return self._lua.table(str(int(seconds)), str(int(fraction * 1_000_000)))
            case "get":
                return self.data.get(key)
            case "set":
                self.data[key] = args[0]
            case "del":
                self.data.pop(key, None)
            case "exists":
                return int(key in self.data)
            case "hget":
                return self.data.get(key, {}).get(args[0])
            case "hset":
                self.data.setdefault(key, {})[args[0]] = str(args[1])
            case "sadd":
                self.data.setdefault(key, set()).update(args)
            case "srem":
                self.data.get(key, set()).difference_update(args)
            case "sismember":
                return int(args[0] in self.data.get(key, ()))
            case "pexpire":
                pass
            case _:
                raise NotImplementedError(command)
        return None

    def eval(self, script: str, keys: Iterable[str], args: Iterable[Any]) -> Any:
        function = self._lua.execute(f"return function(redis, KEYS, ARGV) {script} end")
        table = self._lua.table
        result = function(table(call=self.call), table(*keys), table(*map(str, args)))
        return list(result.values()) if lupa.lua_type(result) == "table" else result


class Pipeline:
    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis
        self.eval = redis.eval

    async def __aenter__(self) -> Pipeline:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    def set(self, key: str, value: str, px: int) -> None:
        self._redis.call("set", key, value)

    def sadd(self, key: str, members: Iterable[str]) -> None:
        self._redis.call("sadd", key, *members)

    def pexpire(self, key: str, milliseconds: int) -> None:
        self._redis.call("pexpire", key, milliseconds)


class Commands:
    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis

    async def get(self, key: str) -> Any:
        return self._redis.call("get", key)

    async def info(self, section: str) -> dict[str, Any]:
        return {}

    async def set(self, key: str, value: str, px: int) -> None:
        self._redis.call("set", key, value)

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._redis.call("del", key)

    async def srem(self, key: str, members: Iterable[str]) -> None:
        self._redis.call("srem", key, *members)

    async def eval(self, script: str, keys: Iterable[str], args: Iterable[Any]) -> Any:
        return self._redis.eval(script, keys, args)

    def pipeline(self, transaction: bool) -> Pipeline:
        return Pipeline(self._redis)
