"""Peers that tests play. Choose the nearest to what the test is about:

- **port** (`peers.port`): calls, without I/O. `Neighbour` and `End` are ports beside the port of a
  link or a plugin; `Desk` is the receiver of a connection; `hop` runs a plugin between two ends.
  For routing, lanes, and what one object does with one message.

      async with hop(MyProxy()) as on_hop:
          on_hop.client.ask("session/prompt", {"sessionId": "s"})
          await on_hop.settle()
          assert on_hop.agent.heard == [("request", "session/prompt", {"sessionId": "s"})]

- **wire** (`peers.wire`): lines in memory, on a virtual clock. `MemoryComponent` is a component
  whose `peer` the test plays, in a chain of `support.memory_chain`; so is a program of a chain file
  in `support.played_chain`. `PassProxy` and `EchoAgent` play themselves, on raw bytes. For promises
  of a whole chain: order, cancellation, restart, dialects, exactly one answer.

      async with running_chain(chain_of(1)) as chain:
          await play_handshake(chain)
          await chain.send({"id": 1, "method": "session/new", "params": {}})
          request = await chain.peer(0).receive()

- **process** (`peers.process`): programs and real time. `Editor` is a run of `acp-conductor`; its
  components are the scripts of `support/components`, which `agent()` and `proxy()` name. For what
  the operating system does: signals, exit codes, stderr, what is left behind.

      editor = Editor(["run", "chain.yaml"])
      assert editor.open() == "s1"
      assert editor.leave() == 0

All of them write JSON without spaces, as the SDKs do; `encoded` is a message as a line.
"""

from support.peers.port import Desk, End, Neighbour, hop
from support.peers.process import Editor
from support.peers.wire import EchoAgent, MemoryComponent, PassProxy, Peer, encoded

__all__ = [
    "Desk",
    "EchoAgent",
    "Editor",
    "End",
    "MemoryComponent",
    "Neighbour",
    "PassProxy",
    "Peer",
    "encoded",
    "hop",
]
