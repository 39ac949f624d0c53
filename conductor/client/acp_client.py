"""An ACP client, and functions that run a chain for it in the current process.

    async with attach(Client(…), make) as attached:
        await attached.client.initialize()
        session = await attached.client.new_session("/project")
        await attached.client.prompt(session, "hello")

The client and the `Chain` are connected by a pair of memory transports. Used by `acp-conductor
prompt`, `check --start` and the test kit.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Literal, TypeVar

import attrs
import trio

from conductor import __version__
from conductor.chain.build import build_components
from conductor.chain.chain import Chain, Ending
from conductor.chainfile.model import ChainFile
from conductor.client.peer import JsonRpcPeer, background_tasks
from conductor.errors import RemoteProtocolError
from conductor.limits import Limits
from conductor.routing.component import Component
from conductor.transport.memory import memory_pair

__all__ = ["Attached", "Client", "attach", "attach_file"]


@attrs.define(eq=False)
class Client(JsonRpcPeer):
    """An ACP client; requests and notifications of the agent go to `handlers`.

    A malformed result raises `RemoteProtocolError`.
    """

    protocol_version: int = attrs.field(default=1, init=False)
    """The negotiated version."""

    async def initialize(
        self,
        *,
        version: int = 1,
        capabilities: Mapping[str, Any] | None = None,
        name: str = "acp-conductor",
    ) -> dict[str, Any]:
        """Send `initialize` and return the result."""
        info = {"name": name, "version": __version__}
        params: dict[str, Any]
        if version == 1:
            params = {"clientCapabilities": dict(capabilities or {}), "clientInfo": info}
        else:
            params = {"capabilities": dict(capabilities or {}), "info": info}
        result = _object(
            "initialize", await self.request("initialize", {"protocolVersion": version, **params})
        )
        self.protocol_version = result.get("protocolVersion", version)
        return result

    async def new_session(
        self,
        cwd: str | None = None,
        mcp_servers: Sequence[Mapping[str, Any]] = (),
        *,
        answered: Callable[[Any], None] | None = None,
    ) -> str:
        """Open a session and return its id. `answered`: see `JsonRpcPeer.request`."""
        params = {"cwd": cwd or os.getcwd(), "mcpServers": list(mcp_servers)}
        result = await self.request("session/new", params, answered=_objects_only(answered))
        session_id = _object("session/new", result).get("sessionId")
        if not isinstance(session_id, str):
            raise _malformed("session/new", "has no `sessionId`")
        return session_id

    async def prompt(
        self,
        session: str,
        prompt: str | Sequence[Any],
        *,
        answered: Callable[[Any], None] | None = None,
    ) -> dict[str, Any]:
        """Send a prompt, given as text or content blocks, and return the result.

        The result arrives at the end of the turn in version 1, at its start in version 2.
        """
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        params = {"sessionId": session, "prompt": blocks}
        result = await self.request("session/prompt", params, answered=_objects_only(answered))
        return _object("session/prompt", result)

    def cancel(self, session: str) -> None:
        """Send `session/cancel`; the agent still answers the prompt."""
        self.notify("session/cancel", {"sessionId": session})


def _object(method: str, result: Any) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise _malformed(method, f"is {_kind(result)}, not an object")
    return result


def _malformed(method: str, problem: str) -> RemoteProtocolError:
    return RemoteProtocolError("the agent", f"its answer to {method} {problem}")


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _objects_only(answered: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
    """A wrapper that calls `answered` only with results that are JSON objects."""
    if answered is None:
        return None
    called = answered
    return lambda result: called(result) if isinstance(result, dict) else None


ClientT = TypeVar("ClientT", bound=Client)


@attrs.define(eq=False)
class Attached(Generic[ClientT]):
    """A client and its chain."""

    client: ClientT
    chain: Chain
    ending: Ending | None = None
    """Why the chain ended; None while it runs."""
    ended: trio.Event = attrs.field(factory=trio.Event)


@asynccontextmanager
async def attach(
    client: Callable[..., ClientT],
    make: Callable[[], Sequence[Component]],
    *,
    mode: Literal["agent", "proxy"] = "agent",
    limits: Limits | None = None,
    stop_timeout: float = 5.0,
    bridged: bool = True,
) -> AsyncIterator[Attached[ClientT]]:
    """Run a chain of the components returned by `make`, with `client(transport)` as its client.

    At the end of the block the client closes its stream and the chain stops in order.
    """
    ours, theirs = memory_pair()
    chain = Chain(
        theirs,
        make,
        mode=mode,
        limits=limits or Limits(),
        stop_timeout=stop_timeout,
        bridged=bridged,
    )
    attached = Attached(client(ours), chain)
    async with background_tasks() as nursery, attached.client.open():
        nursery.start_soon(_run, attached)
        try:
            yield attached
        finally:
            attached.client.close()
            await attached.ended.wait()


@asynccontextmanager
async def attach_file(
    client: Callable[..., ClientT],
    file: ChainFile,
    *,
    made: Callable[[Sequence[Component]], None] = lambda components: None,
) -> AsyncIterator[Attached[ClientT]]:
    """As `attach`, for a chain file with an agent.

    `made` is called with the components before they start.
    """
    specs = file.flat()

    def make() -> list[Component]:
        components = build_components(
            specs, mode="agent", mcp_bridge=file.mcp_bridge, limits=file.limits
        )
        made(components)
        return components

    async with attach(
        client,
        make,
        limits=file.limits,
        stop_timeout=max((spec.stop_timeout for spec in specs), default=5.0),
        bridged=False,  # the bridge declares the MCP capabilities itself
    ) as attached:
        yield attached


async def _run(attached: Attached[Any]) -> None:
    attached.ending = await attached.chain.run()
    attached.ended.set()
