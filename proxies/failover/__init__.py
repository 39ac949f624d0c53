"""`failover`: another agent for a prompt. `agent_failures` tells which errors are a reason."""

from proxies.failover.proxy import Failover, OtherAgent

__all__ = ["Failover", "OtherAgent"]
