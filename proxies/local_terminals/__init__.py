"""`local_terminals`: commands for an agent. `terminal` runs them, and shows them in tool calls."""

from proxies.local_terminals.proxy import LocalTerminals

__all__ = ["LocalTerminals"]
