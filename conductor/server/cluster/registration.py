"""Says in the directory which sessions a client has, and sends it to those that are elsewhere.

A proxy like any other, nearest the client: a session is in the directory before the client hears
of it. Asked to load or resume a session that another living node has, it refuses and says where to
go; a second agent on the same session would write over what the first one does. A node that died a
moment ago, and still has its lease, has nothing any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs

from conductor.acp import session_id_of
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.routing.component import Component
from conductor.server.cluster.directory import SessionDirectory
from conductor.server.cluster.forward import is_node_down
from conductor.server.session_access import session_in_params

__all__ = ["SESSION_ELSEWHERE", "Registrar", "with_registrar"]

SESSION_ELSEWHERE: Final = -32050
"""The session is on another server; `data.owner` is where to connect."""


def with_registrar(
    make: Callable[[], Sequence[Component]], directory: SessionDirectory, principal: str
) -> Callable[[], Sequence[Component]]:
    """`make` for a chain whose sessions are to be in the directory."""

    def make_with_registrar() -> Sequence[Component]:
        registrar = Registrar(directory, principal)
        first = PluginComponent("registrar", registrar, "proxy", bypassed_on_failure=True)
        return [first, *make()]

    return make_with_registrar


@attrs.define(eq=False)
class Registrar(Proxy):
    """Of one client."""

    directory: SessionDirectory
    principal: str
    _sessions: set[str] = attrs.field(factory=set, init=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for session in list(self._sessions):
                self._closed(session)

    @on("session/new")
    @on("session/fork")
    async def set_up(self, params: bytes, forward: Forward) -> bytes:
        result: bytes = await forward()
        await self._opened(session_id_of(result))
        return result

    @on("session/load")
    @on("session/resume")
    async def attach(self, params: bytes, forward: Forward) -> bytes:
        session = session_in_params(params)
        if session is not None and session not in self._sessions:
            owner = await self.directory.owner_of_session(self.principal, session)
            if owner is not None and not await is_node_down(owner):
                raise _owner_node(session, owner)
        result: bytes = await forward()
        await self._opened(session)
        return result

    @on("session/close")
    @on("session/delete")
    async def end(self, params: bytes, forward: Forward) -> bytes:
        result: bytes = await forward()
        self._closed(session_id_of(params))
        return result

    async def _opened(self, session: str | None) -> None:
        if session is not None and session not in self._sessions:
            self._sessions.add(session)
            self.directory.session_opened(self.principal, session)
            await self.directory.wait_published()

    def _closed(self, session: str | None) -> None:
        if session is not None and session in self._sessions:
            self._sessions.remove(session)
            self.directory.session_closed(self.principal, session)


def _owner_node(session: str, owner: str) -> RequestError:
    return RequestError(
        SESSION_ELSEWHERE,
        f"Session {session} is open on another server: connect to {owner}/acp and load it there, "
        "or try again here once it has ended there",
        {"sessionId": session, "owner": f"{owner}/acp"},
    )
