"""`permissions`: answers permission requests by rules. `rules` matches them and decides.

What a tool call is about (paths, commands, kinds) is found by `proxies.shared.tool_calls`.
"""

from proxies.permissions.proxy import Permissions
from proxies.permissions.rules import Rule

__all__ = ["Permissions", "Rule"]
