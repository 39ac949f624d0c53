"""`failover`: another agent for a prompt."""

from proxies.failover.proxy import Failover, OtherAgent

__all__ = ["Failover", "OtherAgent"]
