"""Session claims of one principal at all nodes: claimed, looked up, published and withdrawn.

Sessions that this node has recorded for the principal are not looked up. If Redis is unavailable,
requests that need it are refused. Without a directory there is one node, and its records suffice.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

import attrs

from conductor.jsonrpc.messages import INTERNAL_ERROR
from conductor.proxy import RequestError
from conductor.server.cluster.claims import Record, Verdict
from conductor.server.cluster.directory import RedisUnreachable, SessionDirectory
from conductor.server.session_check import session_not_found
from conductor.server.session_principals import SessionPrincipals, session_digest

__all__ = ["PrincipalClaims"]

_OPEN: Final = ("ours", "free")


@attrs.frozen(eq=False)
class PrincipalClaims:
    """The claims of one principal in the directory, if there is one."""

    owners: SessionPrincipals
    principal: str
    directory: SessionDirectory | None = None

    def check_can_record(self) -> None:
        """Raise `RequestError` if a new session cannot be claimed now."""
        if self.directory is not None and not self.directory.can_record:
            raise _cannot_record()

    async def claim(self, session: str) -> bool:
        """Claim a session at all nodes; true if it was free. Raises `RequestError` if it belongs to
        another principal, or its owner is unknown."""
        directory = self.directory
        if directory is None or self.owners.has(session, self.principal):
            return False
        try:
            verdict = await self._claim(directory, session)
        except RedisUnreachable:
            raise _cannot_tell(session) from None
        _check(session, verdict)
        return verdict == "free"

    async def claim_recorded(self, session: str) -> Verdict:
        """Claim a session that is recorded here; return the verdict before the claim, "unknown"
        also if Redis is unavailable."""
        if self.directory is None:
            return "free"
        with suppress(RedisUnreachable):
            return await self._claim(self.directory, session)
        return "unknown"

    async def look_up(self, session: str) -> None:
        """Raise `RequestError` if the session belongs to another principal at any node."""
        if self.directory is None or self.owners.has(session, self.principal):
            return
        try:
            (verdict,) = await self._verdicts(self.directory, [session])
        except RedisUnreachable:
            raise _cannot_tell(session) from None
        _check(session, verdict)

    async def visible(self, sessions: set[str]) -> set[str]:
        """The sessions that belong to this principal or to none, at any node."""
        if self.directory is None:
            return sessions
        visible = {each for each in sessions if self.owners.has(each, self.principal)}
        unknown = list(sessions - visible)
        try:
            verdicts = await self._verdicts(self.directory, unknown) if unknown else []
        except RedisUnreachable:
            return visible
        return visible.union(
            each for each, verdict in zip(unknown, verdicts, strict=True) if verdict in _OPEN
        )

    async def publish(self, session: str) -> None:
        """Write the claim to the directory before the client gets the session id: until then any
        principal may load it at other nodes. Raises `RequestError` if Redis is unavailable; the
        claim is then written when Redis is back."""
        if (directory := self.directory) is None:
            return
        records = [self._record(session)]
        try:
            await directory.ask(partial(directory.claims.write, records=records))
        except RedisUnreachable:
            directory.claims.is_stale = True
            raise _cannot_record() from None

    async def withdraw(self, session: str | bytes) -> None:
        """Withdraw the claim; if Redis is unavailable, it stays until it expires."""
        if (directory := self.directory) is None:
            return
        record = self._record(session)
        with suppress(RedisUnreachable):
            await directory.ask(partial(directory.claims.withdraw, record=record))

    async def _claim(self, directory: SessionDirectory, session: str) -> Verdict:
        record = self._record(session)
        return await directory.ask(partial(directory.claims.claim, record=record))

    async def _verdicts(self, directory: SessionDirectory, sessions: list[str]) -> list[Verdict]:
        records = [self._record(each) for each in sessions]
        return await directory.ask(partial(directory.claims.look_up, records=records))

    def _record(self, session: str | bytes) -> Record:
        """The record of a session (its id or digest) for this principal."""
        return session_digest(session), self.principal


def _check(session: str, verdict: Verdict) -> None:
    """Raise `RequestError` if the session is not accessible to the principal."""
    if verdict == "theirs":
        raise session_not_found(session)
    if verdict == "unknown":
        raise _cannot_tell(session)


def _cannot_tell(session: str) -> RequestError:
    text = "The owner of this session cannot be looked up now; try again in some seconds"
    return RequestError(INTERNAL_ERROR, text, {"sessionId": session})


def _cannot_record() -> RequestError:
    text = "The owner of a new session cannot be recorded now; try again in some seconds"
    return RequestError(INTERNAL_ERROR, text)
