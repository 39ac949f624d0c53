"""Sessions that the agent names in an update and that nothing has opened: those of its subagents.

An agent should announce a subagent, but may send its updates without that. The first update records
the session for the principal of the agent's client, so that no other can load or prompt it. An
update of a session that belongs to another principal records nothing: agents may number sessions.

Each update is looked at, so the ids that were found to be this principal's are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from conductor.acp import session_id_of
from conductor.jsonrpc.messages import Payload
from conductor.log import get_logger
from conductor.proxy.update_kinds import UpdateFilter, update_filter
from conductor.server.session_principals import SessionAccess, session_digest

__all__ = ["UnannouncedSessions"]

log: Final = get_logger(component="server")

_MAX_KNOWN: Final = 100
_MAX_ID: Final = 200
_MAX_DELETED: Final = 1000


@attrs.define(eq=False)
class UnannouncedSessions:
    """Those of one client's agent."""

    owners: SessionAccess
    principal: str
    _announces: UpdateFilter = attrs.field(
        factory=lambda: update_filter(["subagent_update"]), init=False
    )
    _known: set[str] = attrs.field(factory=set, init=False)
    """Some ids that need no record."""
    _deleted: deque[bytes] = attrs.field(factory=lambda: deque(maxlen=_MAX_DELETED), init=False)
    _without_id: int = attrs.field(default=0, init=False)
    """Number of set-ups under way that get an id with their response."""
    _has_warned: bool = attrs.field(default=False, init=False)

    def concerns(self, params: Payload | None) -> bool:
        """Whether an update (raw params) may announce a session, or name one without a record."""
        return session_id_of(params) not in self._known or self._announces(params)

    def named(self, params: Payload | None) -> str | None:
        """The session of an update, if it has to be recorded."""
        session = session_id_of(params)
        if session is None or self._without_id:
            return None
        is_free = self.owners.allow(session, self.principal)
        if is_free and not self.owners.has(session, self.principal):
            return None if session_digest(session) in self._deleted else session
        if len(session) <= _MAX_ID:
            if len(self._known) == _MAX_KNOWN:
                self._known.clear()
            self._known.add(session)
        return None

    @contextmanager
    def wait_for_id(self) -> Iterator[None]:
        """A session is being set up: updates without a record may be of it."""
        self._without_id += 1
        try:
            yield
        finally:
            self._without_id -= 1

    def deleted(self, session: str) -> None:
        """The session was deleted; updates that come late do not record it again."""
        self._known.clear()
        self._deleted.append(session_digest(session))

    def log_refusal(self, session: str, reason: str) -> None:
        """Log the first session that is not recorded."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("session of a subagent refused", session=session, reason=reason)
