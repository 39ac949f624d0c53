"""Proxies in the conductor's own process."""

import os
import subprocess
import sys

import attrs

from conductor.proxy import Proxy, on


@attrs.define
class Silent(Proxy):
    """Handles nothing; every message is forwarded."""


@attrs.define
class Tag(Proxy):
    """Puts its name before every prompt."""

    name: str = "t"

    @on("session/prompt")
    async def tag(self, params: dict, forward):
        params["prompt"][0]["text"] = f"[{self.name}]" + params["prompt"][0]["text"]
        return await forward(params)


@attrs.define
class Chatty(Proxy):
    """Writes to stdout in every possible way."""

    @on("session/prompt")
    async def print_everywhere(self, params: dict, forward):
        print("printed")
        print("flushed", flush=True)
        sys.stdout.write("written\n")
        os.write(1, b"raw\n")
        subprocess.run(["echo", "from a child"], check=True)  # noqa: ASYNC221
        subprocess.run(["cat"], check=True)  # noqa: ASYNC221 - ends, because stdin is empty
        return await forward(params)


@attrs.define
class Failing(Proxy):
    """Fails at each prompt."""

    @on("session/prompt")
    async def fail(self, params: dict, forward):
        raise RuntimeError("out of order")
