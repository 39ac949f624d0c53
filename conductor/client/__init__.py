"""An ACP client, and chains embedded in the current process.

`acp_client.py`: `Client` speaks ACP as a client. `embedding.py`: `attach` and `attach_file` run a
chain for a client in this process. The base of `Client` is `conductor.peer.JsonRpcPeer`.

Programs of others use `conductor.open_chain` and `open_chain_sync`: typed updates and results, for
trio, asyncio and no event loop. `chain_core.py` runs in trio: for the others in a thread, a portal
of anyio.
"""
