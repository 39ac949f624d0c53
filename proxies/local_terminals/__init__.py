"""`local_terminals`: commands for an agent. `terminal` runs one, `output_tail` bounds its output,
`content` shows it in tool calls.
"""

from proxies.local_terminals.proxy import LocalTerminals

__all__ = ["LocalTerminals"]
