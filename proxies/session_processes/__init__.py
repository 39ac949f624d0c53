"""`session_processes`: a process of the agent for each session. `process` is one of them."""

from proxies.session_processes.proxy import SessionProcesses

__all__ = ["SessionProcesses"]
