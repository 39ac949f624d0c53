"""`normalize`: repairs protocol errors. `quirks.yaml` is the table of agents, `quirks` reads it."""

from proxies.normalize.proxy import Normalize

__all__ = ["Normalize"]
