"""`journal`: sessions of an agent that keeps none. `files` writes and reads them, `session` is an
open one, `ids` its two ids.
"""

from proxies.journal.proxy import Journal

__all__ = ["Journal"]
