"""Bytes in and out: file descriptors, stdio, child processes, memory.

`Transport` (`base.py`) is the interface; `FdTransport`, `MemoryTransport` and the transport of
`claim_stdio` implement it. `io_loop.py` has the two tasks of a connection, `read_loop` and
`write_loop`, and the back-pressure; `epoll_loop.py` lets them run without task switches (Linux).
`spawn.py` starts programs, `child_process.py` reads what they write and waits for them,
`process_tree.py` finds, ends and reaps descendants, and
the orphan guard ends them if the conductor is killed.
"""
