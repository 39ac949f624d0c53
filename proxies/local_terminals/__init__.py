"""`local_terminals`: commands for an agent. `terminal` runs one, `content` shows it in calls."""

from proxies.local_terminals.proxy import LocalTerminals

__all__ = ["LocalTerminals"]
