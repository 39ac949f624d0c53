"""`hooks`: runs a command or calls a URL at an event. `http_post` makes the call."""

from proxies.hooks.proxy import Hook, Hooks

__all__ = ["Hook", "Hooks"]
