"""Per-principal session access list: only a session's principals may load, delete or list it.

Agents of all chains run as one user, usually with one session store, and load any session. The
server therefore records the principals of each session in memory. For an authenticated client,
each message is checked before it enters the chain (`session_check`), and the guard, the first
component of the chain, records the sessions that are set up, loaded or deleted.

A session without a principal, older than the server process, belongs to the first that loads it.
Agents may number their sessions, so one id may have several principals. Many agents keep a session
in a file of its name, so ids that differ only in capitals or composition count as one.

The session of a subagent, which the agent announces, belongs to the principal of the agent's
client, and so does one that only a request or an update of the agent names
(`unannounced_sessions`), unless another principal has it, at any node: the first keeps it. It
counts for the quota. If the agent gives its id to a new session of another principal, it is theirs.
One that was announced is forgotten when its parent is deleted: agents delete both.

Rules: a session is recorded before the agent gets the request; a principal at its quota is refused
further sessions, and never displaces a record, its own included; several nodes agree by their
directory (`cluster.principal_claims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from conductor.acp import (
    AmbiguousSessionId,
    announced_subagent,
    session_id_of,
    unambiguous_session_id,
)
from conductor.jsonrpc.messages import INTERNAL_ERROR
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.proxy.handlers import of_kinds
from conductor.routing.component import Component
from conductor.server.cluster.directory import SessionDirectory
from conductor.server.cluster.principal_claims import PrincipalClaims
from conductor.server.session_check import SessionCheck, session_in_params, session_not_found
from conductor.server.session_principals import SessionPrincipals, session_digest
from conductor.server.unannounced_sessions import UnannouncedSessions

if TYPE_CHECKING:
    from conductor.chain.chain import Chain

__all__ = ["restrict_sessions"]


def restrict_sessions(
    chain: Chain,
    owners: SessionPrincipals,
    principal: str,
    directory: SessionDirectory | None = None,
) -> None:
    """Restrict a chain, before it runs, to the sessions of this principal. `directory` is the
    session directory of several nodes, if there is one."""
    make = chain.make

    def make_with_guard() -> Sequence[Component]:
        guard = _SessionGuard(owners, principal, PrincipalClaims(owners, principal, directory))
        first = PluginComponent("sessions", guard, "proxy")
        first.filter_updates(guard.unannounced.concerns)
        return [first, *make()]

    chain.make = make_with_guard
    check = SessionCheck(owners, principal, has_directory=directory is not None)
    chain.client.access_check = check.check


@attrs.define(eq=False)
class _SessionGuard(Proxy):
    """Records the sessions of one client, and claims them at all nodes."""

    owners: SessionPrincipals
    principal: str
    claims: PrincipalClaims
    _parents: dict[bytes, bytes] = attrs.field(factory=dict, init=False)
    """By the digest of a subagent's session, which is recorded: that of the session above it."""
    unannounced: UnannouncedSessions = attrs.field(init=False)

    @unannounced.default
    def _make_unannounced(self) -> UnannouncedSessions:
        return UnannouncedSessions(self.owners, self.principal)

    @on("session/new")
    @on("session/fork")
    @on("nes/start")
    async def set_up(self, params: bytes, forward: Forward) -> bytes:
        if (source := session_in_params(params)) is not None:
            await self.claims.look_up(source)
        self.claims.check_can_record()
        with self.owners.reserve(self.principal), self.unannounced.wait_for_id():
            result: bytes = await forward()
        try:
            session = unambiguous_session_id(result)
        except AmbiguousSessionId as exc:
            text = f"The agent's response has an ambiguous session id: {exc}"
            raise RequestError(INTERNAL_ERROR, text) from None
        if session is not None:
            self._parents.pop(session_digest(session), None)
            self.owners.assign(session, self.principal)
            await self.claims.publish(session)
        return result

    @on("session/load")
    @on("session/resume")
    async def take_up(self, params: bytes, forward: Forward) -> bytes:
        session = session_in_params(params)
        if session is None:
            return bytes(await forward())  # the agent reports the missing member
        if not self.owners.allow(session, self.principal):
            raise session_not_found(session)  # another principal claimed it since the check
        # The directory first: local records are written to a Redis that has lost its data.
        is_new_to_all = await self.claims.claim(session)
        is_new = False
        try:
            is_new = self.owners.claim(session, self.principal)
            result: bytes = await forward()
        except BaseException:
            if is_new:
                self.owners.release(session, self.principal)
            if is_new_to_all:
                with trio.CancelScope(shield=True):
                    await self.claims.withdraw(session)
            raise
        self._parents.pop(session_digest(session), None)
        # Of two concurrent requests, the first may have failed and released the session.
        if self.owners.assign(session, self.principal):
            await self.claims.publish(session)
        return result

    @on("session/delete")
    @on("nes/close")
    async def delete(self, params: bytes, forward: Forward) -> bytes:
        session = session_in_params(params)
        if session is not None:
            await self.claims.look_up(session)
        result: bytes = await forward()
        if session is not None:
            for each in self._with_descendants(session):
                self._parents.pop(each, None)
                self.owners.release(each, self.principal)
                self.unannounced.skip(each)
                await self.claims.withdraw(each)
        return result

    @on("session/list")
    async def show(self, params: dict[str, Any], forward: Forward) -> dict[str, Any]:
        result: dict[str, Any] = await forward()
        sessions = result.get("sessions")
        if isinstance(sessions, list):
            ids = {id for each in sessions if (id := _id_of(each)) is not None}
            visible = await self.claims.visible(
                {id for id in ids if self.owners.allow(id, self.principal)}
            )
            result["sessions"] = [each for each in sessions if _id_of(each) in visible]
        return result

    # -- sessions of subagents ---------------------------------------------------------------------

    @of_kinds("subagent_update")  # and more: `restrict_sessions`
    @on("session/update")
    async def announce(self, params: bytes, forward: Forward) -> None:
        """Record the session of a subagent before the client learns of it; at the quota, neither
        happens."""
        announced = announced_subagent(params)
        named, child = self.unannounced.named(params), announced and announced[1]
        for session in filter(None, dict.fromkeys((named, child))):
            try:
                await self._claim_child(session)
            except RequestError as exc:
                self.unannounced.log_refusal(session, exc.message)
                if session == child or not self.unannounced.is_waiting_for_id:
                    return
        if announced is not None and self.owners.is_child(announced[1], self.principal):
            parent, child_key = map(session_digest, announced)
            self._parents.setdefault(child_key, parent)
        await forward()

    @on("session/request_permission")
    @on("elicitation/create")
    @on("fs/read_text_file")
    @on("fs/write_text_file")
    @on("terminal/create")
    async def ask(self, params: bytes, forward: Forward) -> bytes:
        if (session := session_id_of(params)) is not None:
            await self._claim_child(session)
        return bytes(await forward())

    async def _claim_child(self, session: str) -> None:
        """Record a session that the agent names, unless another principal has it at any node, or
        Redis cannot be asked. Raises `RequestError` at the quota."""
        if not self.owners.claim_child(session, self.principal):
            return
        verdict = await self.claims.claim_recorded(session)
        if verdict in ("theirs", "unknown"):
            self.owners.withdraw_child(session, self.principal)
        if verdict == "theirs":
            self.unannounced.skip(session)

    def _with_descendants(self, session: str) -> list[bytes]:
        """The digest of a session, and those of all sessions of subagents below it."""
        children: dict[bytes, list[bytes]] = {}
        for child, parent in self._parents.items():
            children.setdefault(parent, []).append(child)
        found = [session_digest(session)]
        for each in found:  # grows
            found += children.pop(each, ())
        return found


def _id_of(session: Any) -> str | None:
    id = session.get("sessionId") if isinstance(session, dict) else None
    return id if isinstance(id, str) else None
