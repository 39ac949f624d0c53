"""`on_restart`: the hook in which a proxy rebuilds its state after a restart."""

from __future__ import annotations

import inspect
from typing import Any

from conductor.proxy.annotations import DeclarationError
from conductor.proxy.middleware import Handler, compose
from conductor.routing.restart_marker import restarted_sessions

__all__ = ["call_restart_hook", "with_restart_hook"]


def with_restart_hook(cls: type, handlers: tuple[Handler, ...]) -> tuple[Handler, ...]:
    """Return the handlers, with one for `initialize` added if the class overrides `on_restart`."""
    hook = getattr(cls, "on_restart", None)
    if hook is None or hook.__qualname__ == "Proxy.on_restart":
        return handlers
    where = f"{cls.__name__}.on_restart"
    if not hasattr(cls, "agent"):
        raise DeclarationError(f"{where} would never be called: it is for proxies")
    if not inspect.iscoroutinefunction(hook):
        raise DeclarationError(f"{where} must be `async def on_restart(self, sessions)`")
    if any(handler.method == "initialize" for handler in handlers):
        return handlers
    return (*handlers, compose("initialize", "client", ()))


async def call_restart_hook(plugin: Any, params: bytes | None) -> None:
    """Call `on_restart` at the end of the handshake, if the `initialize` params have a restart
    marker."""
    sessions, hook = restarted_sessions(params), getattr(plugin, "on_restart", None)
    if sessions is not None and hook is not None:
        await hook(sessions)
