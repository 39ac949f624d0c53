"""Synchronous check of each client message with a session id, before it enters the chain.

On every transport, a request or notification for a session of another principal is answered "not
found". Extensions of a message, as in `_meta`, may name further sessions (`nested_session_ids`),
which have to be the principal's, too. Unreadable params are refused.

Where several nodes share a directory, a session that this principal has not set up here is looked
up there, by the handlers of `session_access`, before it is loaded, forked, deleted or listed; no
other message may name it.

Many agents keep a session in a file of its name. So an id that is a path (`./1`, `a/../1`) is
refused unless the agent assigned it.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from conductor.acp import (
    MCP_METHODS,
    SESSION_SETUP_METHODS,
    AmbiguousSessionId,
    nested_session_ids,
    unambiguous_session_id,
)
from conductor.error_codes import RESOURCE_NOT_FOUND
from conductor.jsonrpc.messages import INVALID_PARAMS, Payload
from conductor.proxy import RequestError
from conductor.server.session_principals import SessionPrincipals

__all__ = ["SessionCheck", "session_in_params", "session_not_found"]

_LOOKED_UP: Final = frozenset(
    {
        *("session/new", "session/fork", "nes/start", "session/load", "session/resume"),
        *("session/delete", "nes/close"),
    }
)
"""Methods for sessions that may be unknown to this node: `session_access` queries the directory."""
_PATH: Final = re.compile(r"(?:^|[/\\])[. ]*(?:$|[/\\])|[\x00-\x1f]")
"""A component of a path that leads elsewhere, or a character that ends a name in some languages."""


@attrs.frozen(eq=False)
class SessionCheck:
    """Session access check of one client."""

    owners: SessionPrincipals
    principal: str
    has_directory: bool = attrs.field(kw_only=True)
    """Whether several nodes share a directory: a session without a record may have a principal."""

    def check(self, method: str, params: Payload | None) -> None:
        """Raise `RequestError` for a message with the session id of another principal."""
        session = session_in_params(params)
        if session is not None:
            self._check_session(session, is_looked_up=method in _LOOKED_UP)
        # MCP servers have session ids of their own, which no node knows.
        for nested in _nested_sessions(method, params, session):
            self._check_session(nested, is_looked_up=method in MCP_METHODS)

    def _check_session(self, session: str, *, is_looked_up: bool) -> None:
        is_allowed = (
            self.owners.has(session, self.principal)
            if self.has_directory and not is_looked_up
            else self.owners.allow(session, self.principal)
        )
        is_of_another = _is_path(session) and not self.owners.has(session, self.principal)
        if is_of_another or not is_allowed:
            raise session_not_found(session)


def session_in_params(params: Payload | None) -> str | None:
    """The session id in a client's message. Raises `RequestError` if it is ambiguous."""
    try:
        return unambiguous_session_id(params)
    except AmbiguousSessionId as exc:
        text = f"Invalid params: ambiguous session id: {exc}"
        raise RequestError(INVALID_PARAMS, text) from None


def session_not_found(session: str) -> RequestError:
    """The error for a session of another principal, the same as for an unknown session."""
    return RequestError(RESOURCE_NOT_FOUND, "Resource not found", {"sessionId": session})


def _nested_sessions(method: str, params: Payload | None, session: str | None) -> set[str]:
    try:
        return nested_session_ids(params, session, opens=method in SESSION_SETUP_METHODS)
    except AmbiguousSessionId as exc:
        raise RequestError(INVALID_PARAMS, f"Invalid params: session id in _meta: {exc}") from None


def _is_path(session: str) -> bool:
    """Whether an agent that uses the id as a file name may open the file of another id."""
    return _PATH.search(session) is not None
