"""The proxy author's API.

@attrs.define
class AddContext(Proxy):
    context: str

    @on("session/prompt")
    async def add_context(self, params: dict, forward):
        params["prompt"].insert(0, {"type": "text", "text": self.context})
        return await forward(params)
"""

from __future__ import annotations

from conductor.errors import RequestCancelled, RequestError
from conductor.proxy.base import Agent, Plugin, Proxy
from conductor.proxy.declare import DeclarationError, on
from conductor.proxy.peers import Peer

__all__ = [
    "Agent",
    "DeclarationError",
    "Peer",
    "Plugin",
    "Proxy",
    "RequestCancelled",
    "RequestError",
    "on",
    "run",
]


def run(plugin: type[Plugin], /) -> None:
    """Be a stand-alone program: `plugin` on stdin and stdout, under any conductor.

    Options are read from the environment variable `ACP_PROXY_OPTIONS` (a JSON object) or from the
    arguments `--option value`. Never returns.
    """
    from conductor.proxy.standalone import run_plugin

    run_plugin(plugin)
