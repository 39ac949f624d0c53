"""`redact`: hides secrets. `text_positions` tells which strings of a message are text.

The secrets are found by `conductor.secrets.finder`.
"""

from proxies.redact.proxy import Redact

__all__ = ["Redact"]
