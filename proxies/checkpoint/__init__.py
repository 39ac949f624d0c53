"""`checkpoint`: snapshots of the project and `/rewind`. `shadow_git` takes and restores them."""

from proxies.checkpoint.proxy import Checkpoint

__all__ = ["Checkpoint"]
