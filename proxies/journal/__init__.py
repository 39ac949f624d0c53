"""`journal`: sessions of an agent that keeps none. `files` writes and reads them, `session` is an
open one.
"""

from proxies.journal.proxy import Journal

__all__ = ["Journal"]
