"""Proxy that registers the sessions of one client in the directory.

It is the first proxy of the chain: a session is in the directory before the client learns its id.
To load or resume a session that another live node has is refused with the address of that node; a
second agent on one session would overwrite the work of the first. A node that has died before its
lease expired is recognized by a TCP connection attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs

from conductor.acp import session_id_of
from conductor.error_codes import SESSION_ELSEWHERE
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.routing.component import Component
from conductor.server.cluster.directory import SessionDirectory
from conductor.server.cluster.forward import is_node_down
from conductor.server.session_check import session_in_params

__all__ = ["Registrar", "with_registrar"]


def with_registrar(
    make: Callable[[], Sequence[Component]], directory: SessionDirectory, principal: str
) -> Callable[[], Sequence[Component]]:
    """Wrap the component factory of a chain: add a `Registrar` as the first proxy."""

    def make_with_registrar() -> Sequence[Component]:
        registrar = Registrar(directory, principal)
        first = PluginComponent("registrar", registrar, "proxy", bypassed_on_failure=True)
        return [first, *make()]

    return make_with_registrar


@attrs.define(eq=False)
class Registrar(Proxy):
    """Registers the sessions of one client."""

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
