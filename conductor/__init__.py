"""acp-conductor: run proxy chains of the Agent Client Protocol between any client and any agent.

A *chain* is a list of proxies, the first one nearest the client, and an agent. The conductor starts
the components (programs, connections, or *plugins*: Python proxies in its own process), routes each
message to the next one in both directions, and supervises them. Six primitives carry a message:

- `Transport` (`transport/base.py`): bytes in and out. File descriptors, stdio, child processes,
  memory, remote connections.
- `Connection` (`jsonrpc/connection.py`): one JSON-RPC peer on a transport: line framing, message
  ids, in-flight requests, batches, write buffer.
- `Port` (`routing/port.py`): a component's face toward one neighbour. A message that a component
  sends is passed to the port of the neighbour that receives it.
- `Link` (`routing/link.py`): a component that is reached over a connection, with its one or two
  ports; a proxy's second port is the traffic inside `proxy/successor` envelopes.
- `Lane` (`plugins/lane.py`): the messages of one direction through an in-process proxy, delivered
  one at a time in order of arrival.
- `Chain` (`chain/chain.py`): all components of one client, from start to ordered stop.

      client       proxy (process)      proxy (in process)        agent
    Transport         Transport                                 Transport
    Connection        Connection                                Connection
    Link[Port] <-> Link[Port|Port] <-> [Port|lanes|Port] <-> Link[Port]

A message that no in-process proxy handles keeps the bytes of its payload, and is read, routed and
written in one step without a task switch (`transport/io_loop.py`).

Around them: `supervision/` starts, initializes, watches, restarts and stops components; `proxy/`,
`schema/` and `testing/` are the API of proxy authors; `chainfile/` reads chain files, `registry/`
resolves names of agents in them; `client/` is a client on the same core; `remote/` and `server/`
are components and clients on other machines; `tracing/`, `telemetry/` and `viewer/` record and show
messages; `control/` is the socket for `ps`; `cli/` has one module or package per command.
docs/architecture.md has the whole tree, and says what is decided where.

Programs embed a chain with `open_chain` and `open_chain_sync` (docs/embedding.md). This module
imports nothing until such a name is used: every start of the program imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conductor.client.chain_core import TurnResult
    from conductor.client.open_chain import ChainClient, ChainSession, ChainTurn, open_chain
    from conductor.client.open_chain_sync import (
        SyncChainClient,
        SyncChainSession,
        SyncChainTurn,
        open_chain_sync,
    )

__all__ = [
    "ChainClient",
    "ChainSession",
    "ChainTurn",
    "SyncChainClient",
    "SyncChainSession",
    "SyncChainTurn",
    "TurnResult",
    "__version__",
    "open_chain",
    "open_chain_sync",
]

__version__ = "0.1.0"
"""The version of the package."""

_MODULES = {
    "conductor.client.open_chain": ("ChainClient", "ChainSession", "ChainTurn", "open_chain"),
    "conductor.client.open_chain_sync": (
        *("SyncChainClient", "SyncChainSession", "SyncChainTurn"),
        "open_chain_sync",
    ),
    "conductor.client.chain_core": ("TurnResult",),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module 'conductor' has no attribute {name!r}")
