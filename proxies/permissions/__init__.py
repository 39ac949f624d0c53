"""`permissions`: answers permission requests by rules. `rules` matches them and decides.

`proxies.shared.tool_calls` finds the paths, commands and kinds of a tool call.
"""

from proxies.permissions.proxy import Permissions
from proxies.permissions.rules import Rule

__all__ = ["Permissions", "Rule"]
