"""`known_kinds`: updates, content and values that an older client does not know, as the nearest
that it knows. `updates` converts updates, `proxies.v1_v2.known_values` their parts.
"""

from proxies.known_kinds.proxy import KnownKinds

__all__ = ["KnownKinds"]
