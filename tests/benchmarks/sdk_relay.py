"""A relay on the official Python SDK, the alternative to a conductor.

    python sdk_relay.py AGENT ARG…

Untyped: it forwards methods and params as they are, which is the cheapest way that the SDK has.
"""

import asyncio
import sys
from typing import Any

from acp.connection import Connection
from acp.stdio import spawn_stdio_connection, stdio_streams


async def main() -> None:
    ended = asyncio.Event()
    to_client: Connection

    async def from_agent(method: str, params: Any, is_notification: bool) -> Any:
        if is_notification:
            return await to_client.send_notification(method, params)
        return await to_client.send_request(method, params)

    async with spawn_stdio_connection(from_agent, *sys.argv[1:]) as (to_agent, _):

        async def from_client(method: str, params: Any, is_notification: bool) -> Any:
            if is_notification:
                return await to_agent.send_notification(method, params)
            return await to_agent.send_request(method, params)

        reader, writer = await stdio_streams()
        to_client = Connection(from_client, writer, reader, listening=False)
        reading = asyncio.create_task(to_client.main_loop())
        reading.add_done_callback(lambda _: ended.set())
        await ended.wait()


asyncio.run(main())
