"""The chain of a second agent of a plugin (`Plugin.open_agent`), in this process.

The plugin is its client, in memory; programs of the chain are supervised as those of any other.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from conductor.background_tasks import background_tasks
from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chainfile import ChainFile, ComponentSpec, load
from conductor.chainfile.paths import command_name
from conductor.chainfile.project_file import trusted_agent_file
from conductor.errors import LocalProtocolError, StartError
from conductor.peer import JsonRpcPeer
from conductor.plugins.handler_call import current_handler_call
from conductor.proxy.second_agent import AgentSource
from conductor.transport.memory import memory_pair

__all__ = ["run_agent_chain"]


@asynccontextmanager
async def run_agent_chain(
    spec_of: Callable[[ChainFile], ChainSpec],
    source: AgentSource,
    *,
    name: str | None,
    env: Mapping[str, str],
    files: Mapping[str, bytes] | None = None,
) -> AsyncIterator[tuple[str, JsonRpcPeer]]:
    """Run the chain for the duration of the block; yields the agent's name and its client's peer.
    `files` are those of the plugin (`ComponentSpec.files`).

    At the end, also if the caller is cancelled, the chain stops in order. Raises `ChainFileError`
    for a chain file with mistakes and `StartError` for one without an agent.
    """
    file = _chain_file(source, name, env, files)
    specs = file.flat()
    ours, theirs = memory_pair()
    chain = Chain(theirs, spec_of(file))
    ended = trio.Event()

    async def run() -> None:
        with trio.CancelScope(shield=True):  # ends when the peer closes the transport
            await chain.run()
        ended.set()

    peer = JsonRpcPeer(ours, limits=file.limits)
    handler_call = current_handler_call.get()
    current_handler_call.set(None)  # the chain's tasks belong to no handler
    async with background_tasks() as nursery:
        nursery.start_soon(run)
        async with peer.open():
            current_handler_call.set(handler_call)
            try:
                yield name or specs[-1].name, peer
            finally:
                peer.close()
                await ended.wait()


def _chain_file(
    source: AgentSource,
    name: str | None,
    env: Mapping[str, str],
    files: Mapping[str, bytes] | None,
) -> ChainFile:
    if isinstance(source, str | os.PathLike):
        if env:
            raise LocalProtocolError(
                "open_agent: `env` is for a program; a chain file has `env:` for each component"
            )
        path = os.fspath(source)
        if files and any(each.endswith((".yaml", ".yml")) for each in files):  # of a project
            file = trusted_agent_file(path, os.environ, files)
        else:
            file = load(path)
        if file.agent is None:
            reason = f"the chain file {path} has no `agent:`"
            raise StartError(name or "agent", reason)
        return file
    argv = tuple(source)
    if not argv:
        raise LocalProtocolError("open_agent: the argv is empty; write [program, argument, …]")
    agent = ComponentSpec(name=name or command_name(argv), run=argv, env=dict(env))
    return ChainFile(path="", name=agent.name, agent=agent)
