"""An ACP client, and chains embedded in the current process.

`acp_client.py`: `Client` speaks ACP as a client. `embedding.py`: `attach` and `attach_file` run a
chain for a client in this process. The base of `Client` is `conductor.peer.JsonRpcPeer`.

May import `chain` and everything below it.
"""
