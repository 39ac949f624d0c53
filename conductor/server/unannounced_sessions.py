"""Sessions that the agent names in an update and that nothing has opened: those of its subagents.

An agent should announce a subagent, but may send its updates without that. The first update records
the session for the principal of the agent's client, so that no other can load or prompt it. An
update of a session that belongs to another principal records nothing: agents may number sessions,
and a hostile one names those of others.

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
from conductor.server.session_principals import SessionPrincipals, session_digest

__all__ = ["UnannouncedSessions"]

log: Final = get_logger(component="server")

_MAX_KNOWN: Final = 100
_MAX_ID: Final = 200
_MAX_SKIPPED: Final = 1000


@attrs.define(eq=False)
class UnannouncedSessions:
    """Unannounced sessions of one client's agent."""

    owners: SessionPrincipals
    principal: str
    _announces: UpdateFilter = attrs.field(
        factory=lambda: update_filter(["subagent_update"]), init=False
    )
    _known: set[str] = attrs.field(factory=set, init=False)
    """Some ids that need no record."""
    _skipped: deque[bytes] = attrs.field(factory=lambda: deque(maxlen=_MAX_SKIPPED), init=False)
    """Digests of sessions that are not recorded: deleted ones, and others' at another node."""
    _without_id: int = attrs.field(default=0, init=False)
    """Number of set-ups under way that get an id with their response."""
    _has_warned: bool = attrs.field(default=False, init=False)

    def concerns(self, params: Payload | None) -> bool:
        """Whether an update (raw params) may announce a session, or name one without a record."""
        return session_id_of(params) not in self._known or self._announces(params)

    def named(self, params: Payload | None) -> str | None:
        """The session of an update, if it has to be recorded."""
        session = session_id_of(params)
        if session is None:
            return None
        if self.owners.has(session, self.principal):
            if len(session) <= _MAX_ID:
                if len(self._known) == _MAX_KNOWN:
                    self._known.clear()
                self._known.add(session)
            return None
        is_free = self.owners.allow(session, self.principal)
        return session if is_free and session_digest(session) not in self._skipped else None

    @property
    def is_waiting_for_id(self) -> bool:
        """Whether a session is being set up, of which an update may be: at the quota, it has the
        last place."""
        return self._without_id > 0

    @contextmanager
    def wait_for_id(self) -> Iterator[None]:
        """A session is being set up."""
        self._without_id += 1
        try:
            yield
        finally:
            self._without_id -= 1

    def skip(self, session: str | bytes) -> None:
        """Do not record the session (its id or digest): it was deleted, and updates may come late,
        or it belongs to another principal at another node."""
        self._known.clear()
        self._skipped.append(session_digest(session))

    def log_refusal(self, session: str, reason: str) -> None:
        """Log the first session that is not recorded."""
        if not self._has_warned:
            self._has_warned = True
            session = session[:_MAX_ID]
            log.warning("session of a subagent refused", session=session, reason=reason)
