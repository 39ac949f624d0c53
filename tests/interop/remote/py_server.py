"""py_agent.py behind the Python SDK's HTTP and WebSocket server, on hypercorn. Prints its port."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

from acp.http.asgi import create_asgi_app
from hypercorn.asyncio import serve
from hypercorn.config import Config

sys.path.insert(0, str(Path(__file__).parents[1]))
import py_agent


def agent(client: Any) -> py_agent.Agent:
    made = py_agent.Agent()
    made.on_connect(client)
    return made


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = Config()
        config.bind, config.errorlog = [f"fd://{listener.fileno()}"], None
        await serve(create_asgi_app(agent), config)


if __name__ == "__main__":
    asyncio.run(main())
