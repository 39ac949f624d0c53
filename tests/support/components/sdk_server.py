"""The agent of the interop tests behind the Python SDK's own HTTP and WebSocket server.

Prints its port, a free one without `--port`. `--uvicorn` runs it on a server that only has
HTTP/1.1; `--die-on TEXT`, the last argument, ends the process when a prompt says so.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import Any

from acp.http.asgi import create_asgi_app

AGENT = Path(__file__).parents[2] / "interop" / "py_agent.py"
spec = importlib.util.spec_from_file_location("py_agent", AGENT)
assert spec is not None
assert spec.loader is not None
py_agent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(py_agent)


class Agent(py_agent.Agent):  # type: ignore[misc]
    def __init__(self, client: Any) -> None:
        super().__init__()
        self.client = client
        self.sessions = os.getpid() * 1000  # another process has other sessions

    async def prompt(self, session_id: str, prompt: list[Any], **meta: Any) -> Any:
        if "--die-on" in sys.argv and sys.argv[-1] in prompt[-1].text:
            os._exit(9)
        return await super().prompt(session_id, prompt, **meta)


async def on_hypercorn(app: Any, listener: socket.socket) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.errorlog = None
    await serve(app, config)


async def on_uvicorn(app: Any, listener: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(app, ws="wsproto", log_level="critical")
    await uvicorn.Server(config).serve([listener])


async def main() -> None:
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    serve = on_uvicorn if "--uvicorn" in sys.argv else on_hypercorn
    await serve(create_asgi_app(Agent), listener)


if __name__ == "__main__":
    asyncio.run(main())
