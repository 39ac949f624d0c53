"""An ACP client, and chains embedded in the current process.

`acp_client.py`: `Client` speaks ACP as a client. `embedding.py`: `attach` and `attach_file` run a
chain for a client in this process. `peer.py`: `JsonRpcPeer`, one end of a JSON-RPC connection, is
the base of `Client`, of MCP clients and of the fakes in `conductor.testing`.

May import `chain` and everything below it.
"""
