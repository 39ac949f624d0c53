"""Messages that do not fit the protocol, or the type of their handler: a mistake of their sender.

It is logged once for each handler; a request gets -32602, and a notification is passed on if the
plugin's `on_error` says so: a proxy that redacts must not be passed by a mistake. The params are
compared with the schema only when a handler has failed, so good messages cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from conductor.acp import MCP_METHODS, session_id_of
from conductor.errors import LocalProtocolError, describe
from conductor.log import get_logger
from conductor.proxy.conversion import decode_params
from conductor.proxy.sessions import chain_info
from conductor.schema import METHODS_BY_VERSION
from conductor.schema.convert import misfit

__all__ = [
    "InvalidParams",
    "mistake_of_peer",
    "passes_misfit",
    "session_id_in",
]

Part: TypeAlias = Literal["params", "notification", "result"]
log: Final = get_logger()


class InvalidParams(ValueError):
    """A message does not have what its handler is promised. The text names the member."""


def session_id_in(params: Mapping[str, Any]) -> str:
    """The session that params name. Raises `InvalidParams`."""
    id = params.get("sessionId")
    if not isinstance(id, str):
        raise InvalidParams("sessionId: expected string")
    return id


def mistake_of_peer(
    plugin: Any,
    handler: str,
    method: str,
    raw: bytes | None,
    failure: BaseException,
    part: Part,
    sender: str,
) -> str | None:
    """The part of a message or an answer that does not fit the schema, or the failure of its
    handler: `sessionId: expected string, got nothing`. `None` if the failure is the plugin's: the
    message fits, or the handler has broken a rule for authors.

    The first such message of a handler, `file:line`, is logged.
    """
    if isinstance(failure, LocalProtocolError):
        return None
    problem = _misfit(plugin, method, raw, part)
    if problem is None and part != "result" and isinstance(failure, InvalidParams):
        problem = str(failure)
    if problem is not None and _is_first(plugin, handler):
        log.warning(
            "malformed message, its handler cannot read it; later ones are not logged",
            sender=sender,
            method=method,
            part=part,
            problem=problem,
            session=None if part == "result" else session_id_of(raw),
            plugin=type(plugin).__name__,
            handler=handler,
            failure=describe(failure),
        )
    return problem


def _misfit(plugin: Any, method: str, raw: bytes | None, part: Part) -> str | None:
    """The part that does not fit; `None` if it fits. Of a message that no schema describes, what
    keeps it from being decoded."""
    versions = (plugin.protocol_version, *METHODS_BY_VERSION)
    version = next((v for v in versions if method in METHODS_BY_VERSION.get(v, ())), None)
    # MCP messages have several bindings, of which the schema describes one.
    if version is None or method in MCP_METHODS:
        try:
            decode_params(raw, dict)
        except ValueError as exc:
            return str(exc)
        return None
    described = METHODS_BY_VERSION[version][method]
    type_name = getattr(described, part) or (None if part == "result" else described.params)
    return None if type_name is None else misfit(b"{}" if raw is None else raw, type_name, version)


def _is_first(plugin: Any, handler: str) -> bool:
    """Whether it is the first misfit of this handler, `file:line`, which is logged."""
    known = chain_info(plugin).misfits
    is_first = handler not in known
    known.add(handler)
    return is_first


def passes_misfit(
    plugin: Any, handler: Any, params: bytes | None, problem: ValueError, sender: str | None = None
) -> bool:
    """Whether a notification that a `Handler` cannot read is passed on unchanged.

    That is so for schema types: an agent's mistake in one update must not cost the user the update.
    A `required` proxy, a guard, drops what it cannot read. Only the first one of a handler is
    logged.
    """
    if handler.version is None or plugin._acp_runtime.required:
        return False
    if _is_first(plugin, handler.location):
        log.warning(
            "notification does not fit the type of its handler, passed on unchanged; "
            "later ones are not logged",
            plugin=type(plugin).__name__,
            handler=handler.location,
            method=handler.method,
            type=getattr(handler.annotation, "__name__", str(handler.annotation)),
            session=session_id_of(params),
            problem=str(problem),
            **({} if sender is None else {"sender": sender}),
        )
    return True
