"""Whose a session is: what an agent keeps for one principal nobody else takes up, deletes or sees.

The agents of all chains run as one user, most keep their sessions in one place, and load whatever
they are asked to. A proxy nearest each client that showed credentials remembers who set up which
session, for as long as the server lives, and refuses a session of others as if there were none.

Of sessions from before the server's time, or of another server, nobody knows whose they are: they
become whoever's loads them first. An agent may number its sessions, so that one id may be the
sessions of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from conductor.components.base import Component
from conductor.components.plugin import PluginComponent
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.routing.recollection import session_of

__all__ = ["Owners", "guarding"]

_NOT_FOUND: Final = -32002
"""ACP's "resource not found"."""


@attrs.define(eq=False)
class Owners:
    """Of sessions, by id; of more than `most`, the oldest are forgotten."""

    most: int = 100_000
    _principals: dict[str, frozenset[str]] = attrs.field(factory=dict, init=False)

    def claim(self, session: str, principal: str) -> None:
        """The session was set up for this principal."""
        others = self._principals.get(session, frozenset())
        self._principals[session] = others | {principal}
        if len(self._principals) > self.most:
            del self._principals[next(iter(self._principals))]

    def forget(self, session: str) -> None:
        self._principals.pop(session, None)

    def allow(self, session: str, principal: str) -> bool:
        """Whether the session is this principal's, or nobody's."""
        principals = self._principals.get(session)
        return principals is None or principal in principals


def guarding(
    make: Callable[[], Sequence[Component]], owners: Owners, principal: str
) -> Callable[[], Sequence[Component]]:
    """`make` for a chain of this principal."""

    def make_with_guard() -> Sequence[Component]:
        return [PluginComponent("sessions", _Guard(owners, principal), "proxy"), *make()]

    return make_with_guard


@attrs.define(eq=False)
class _Guard(Proxy):
    """Of one client."""

    owners: Owners
    principal: str

    @on("session/new")
    async def set_up(self, params: bytes, forward: Forward) -> bytes:
        result: bytes = await forward()
        self._claim(session_of(result))
        return result

    @on("session/load")
    @on("session/resume")
    async def take_up(self, params: bytes, forward: Forward) -> bytes:
        session = self._checked(params)
        result: bytes = await forward()
        self._claim(session)
        return result

    @on("session/fork")
    async def fork(self, params: bytes, forward: Forward) -> bytes:
        self._checked(params)
        return await self.set_up(params, forward)

    @on("session/delete")
    async def delete(self, params: bytes, forward: Forward) -> bytes:
        session = self._checked(params)
        result: bytes = await forward()
        if session is not None:
            self.owners.forget(session)
        return result

    @on("session/list")
    async def show(self, params: dict[str, Any], forward: Forward) -> dict[str, Any]:
        result: dict[str, Any] = await forward()
        sessions = result.get("sessions")
        if isinstance(sessions, list):
            result["sessions"] = [each for each in sessions if self._may_see(each)]
        return result

    def _checked(self, params: bytes) -> str | None:
        session = session_of(params)
        if session is not None and not self.owners.allow(session, self.principal):
            raise RequestError(_NOT_FOUND, "Resource not found", {"sessionId": session})
        return session

    def _claim(self, session: str | None) -> None:
        if session is not None:
            self.owners.claim(session, self.principal)

    def _may_see(self, session: Any) -> bool:
        id = session.get("sessionId") if isinstance(session, dict) else None
        return not isinstance(id, str) or self.owners.allow(id, self.principal)
