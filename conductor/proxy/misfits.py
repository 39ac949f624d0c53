"""Notifications that do not fit the type of their handler: passed on unchanged, logged once."""

from __future__ import annotations

from typing import Any, Final

from conductor.acp import session_id_of
from conductor.log import get_logger
from conductor.proxy.chain_info import chain_info

__all__ = ["passes_misfit"]

log: Final = get_logger()


def passes_misfit(plugin: Any, handler: Any, params: bytes | None, problem: ValueError) -> bool:
    """Whether a notification that a `Handler` cannot read is passed on unchanged.

    That is so for schema types: an agent's mistake in one update must not cost the user the update.
    A `required` proxy, a guard, drops what it cannot read. Only the first one of a handler is
    logged.
    """
    if handler.version is None or plugin._acp_runtime.required:
        return False
    known = chain_info(plugin).misfits
    if handler.location not in known:
        known.add(handler.location)
        log.warning(
            "notification does not fit the type of its handler, passed on unchanged; "
            "later ones are not logged",
            plugin=type(plugin).__name__,
            handler=handler.location,
            method=handler.method,
            type=getattr(handler.annotation, "__name__", str(handler.annotation)),
            session=session_id_of(params),
            problem=str(problem),
        )
    return True
