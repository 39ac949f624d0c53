"""Per-principal session access list: only a session's principals may load, delete or list it.

Agents of all chains run as one user, usually with one session store, and load any session. The
server therefore records the principals of each session in memory. For an authenticated client,
every request and notification with a session id is checked before it enters the chain
(`_SessionGuard.check`, on every transport); a session of another principal is "not found". A
session without a principal, older than the server process, belongs to the first that loads it.
Agents may number their sessions, so one id may have several principals.

Where several nodes share a directory, a session that this principal has not set up here is looked
up there (`claims`) before it is loaded, forked, deleted or listed; no other message may name it.

Extensions of a message, as in `_meta`, may name further sessions (`nested_session_ids`), which have
to be the principal's, too.

The session of a subagent, which the agent announces, belongs to the principal of the agent's
client, and so does one that only a request or an update of the agent names
(`unannounced_sessions`), unless another principal has it, at any node: the first keeps it. It
counts for the quota. If the agent gives its id to a new session of another principal, it is theirs.
One that was announced is forgotten when its parent is deleted: agents delete both.

Many agents keep a session in a file of its name. So ids that differ only in capitals or composition
count as one, and an id that is a path (`./1`, `a/../1`) is refused unless the agent assigned it.

Rules: unreadable params are refused; a session is recorded before the agent gets the request; a
principal at its quota is refused further sessions, and never displaces a record, its own included;
if the directory does not answer, requests that need it are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from conductor.acp import (
    MCP_METHODS,
    SESSION_SETUP_METHODS,
    AmbiguousSessionId,
    announced_subagent,
    nested_session_ids,
    session_id_of,
    unambiguous_session_id,
)
from conductor.error_codes import RESOURCE_NOT_FOUND
from conductor.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, Payload
from conductor.log import get_logger
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.proxy.handlers import of_kinds
from conductor.routing.component import Component
from conductor.server.cluster.claims import Record, Verdict
from conductor.server.cluster.directory import RedisUnreachable, SessionDirectory
from conductor.server.session_principals import SessionPrincipals, session_digest
from conductor.server.unannounced_sessions import UnannouncedSessions

if TYPE_CHECKING:
    from conductor.chain.chain import Chain

__all__ = ["restrict_sessions", "session_in_params"]

log: Final = get_logger(component="server")

_LOOKED_UP: Final = frozenset(
    {
        *("session/new", "session/fork", "nes/start", "session/load", "session/resume"),
        *("session/delete", "nes/close"),
    }
)
"""Methods for sessions that may be unknown to this node: their handlers query the directory."""
_OPEN: Final = ("ours", "free")
_PATH: Final = re.compile(r"(?:^|[/\\])[. ]*(?:$|[/\\])|[\x00-\x1f]")
"""A component of a path that leads elsewhere, or a character that ends a name in some languages."""


def restrict_sessions(
    chain: Chain,
    owners: SessionPrincipals,
    principal: str,
    directory: SessionDirectory | None = None,
) -> None:
    """Restrict a chain, before it runs, to the sessions of this principal. `directory` is the
    session directory of several nodes, if there is one."""
    make, access_check = chain.make, _SessionGuard(owners, principal, directory)

    def make_with_guard() -> Sequence[Component]:
        guard = _SessionGuard(owners, principal, directory)
        first = PluginComponent("sessions", guard, "proxy")
        first.filter_updates(guard.unannounced.concerns)
        return [first, *make()]

    chain.make = make_with_guard
    chain.client.access_check = access_check.check


@attrs.define(eq=False)
class _SessionGuard(Proxy):
    """Session access check of one client."""

    owners: SessionPrincipals
    principal: str
    directory: SessionDirectory | None = None
    _parents: dict[bytes, bytes] = attrs.field(factory=dict, init=False)
    """By the digest of a subagent's session, which is recorded: that of the session above it."""
    unannounced: UnannouncedSessions = attrs.field(init=False)

    @unannounced.default
    def _make_unannounced(self) -> UnannouncedSessions:
        return UnannouncedSessions(self.owners, self.principal)

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
            self.owners.allow(session, self.principal)
            if self.directory is None or is_looked_up
            else self.owners.has(session, self.principal)
        )
        is_of_another = _is_path(session) and not self.owners.has(session, self.principal)
        if is_of_another or not is_allowed:
            raise _not_found(session)

    @on("session/new")
    @on("session/fork")
    @on("nes/start")
    async def set_up(self, params: bytes, forward: Forward) -> bytes:
        if (source := session_in_params(params)) is not None:
            await self._look_up(source)
        if self.directory is not None and not self.directory.can_record:
            raise _cannot_record()
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
            await self._publish(session)
        return result

    @on("session/load")
    @on("session/resume")
    async def take_up(self, params: bytes, forward: Forward) -> bytes:
        session = session_in_params(params)
        if session is None:
            return bytes(await forward())  # the agent reports the missing member
        if not self.owners.allow(session, self.principal):
            raise _not_found(session)  # another principal claimed it since the check
        # The directory first: local records are written to a Redis that has lost its data.
        is_new_to_all = await self._claim(session)
        is_new = False
        try:
            is_new = self.owners.claim(session, self.principal)
            result: bytes = await forward()
        except BaseException:
            if is_new:
                self.owners.release(session, self.principal)
            if is_new_to_all:
                with trio.CancelScope(shield=True):
                    await self._delete_own_keys(session)
            raise
        self._parents.pop(session_digest(session), None)
        # Of two concurrent requests, the first may have failed and released the session.
        if self.owners.assign(session, self.principal):
            await self._publish(session)
        return result

    @on("session/delete")
    @on("nes/close")
    async def delete(self, params: bytes, forward: Forward) -> bytes:
        session = session_in_params(params)
        if session is not None:
            await self._look_up(session)
        result: bytes = await forward()
        if session is not None:
            for each in self._with_descendants(session):
                self._parents.pop(each, None)
                self.owners.release(each, self.principal)
                self.unannounced.skip(each)
                await self._delete_own_keys(each)
        return result

    @on("session/list")
    async def show(self, params: dict[str, Any], forward: Forward) -> dict[str, Any]:
        result: dict[str, Any] = await forward()
        sessions = result.get("sessions")
        if isinstance(sessions, list):
            ids = {id for each in sessions if (id := _id_of(each)) is not None}
            visible = await self._visible(
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
        if not self.owners.claim_child(session, self.principal) or self.directory is None:
            return
        record = self._record(session)
        verdict: Verdict = "unknown"
        with suppress(RedisUnreachable):
            claim = partial(self.directory.claims.claim, record=record)
            verdict = await self.directory.ask(claim)
        if verdict not in _OPEN:
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

    # -- the directory of several nodes ------------------------------------------------------------

    async def _claim(self, session: str) -> bool:
        """Claim a session at all nodes; true if it was free. Raises `RequestError` if it belongs to
        another principal, or its owner is unknown."""
        directory = self.directory
        if directory is None or self.owners.has(session, self.principal):
            return False
        record = self._record(session)
        try:
            verdict = await directory.ask(partial(directory.claims.claim, record=record))
        except RedisUnreachable:
            raise _cannot_tell(session) from None
        _check(session, verdict)
        return verdict == "free"

    async def _look_up(self, session: str) -> None:
        """Raise `RequestError` if the session belongs to another principal at any node."""
        if self.directory is None or self.owners.has(session, self.principal):
            return
        try:
            (verdict,) = await self._verdicts(self.directory, [session])
        except RedisUnreachable:
            raise _cannot_tell(session) from None
        _check(session, verdict)

    async def _visible(self, sessions: set[str]) -> set[str]:
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

    async def _verdicts(self, directory: SessionDirectory, sessions: list[str]) -> list[Verdict]:
        records = [self._record(each) for each in sessions]
        return await directory.ask(partial(directory.claims.look_up, records=records))

    async def _publish(self, session: str) -> None:
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

    async def _delete_own_keys(self, session: str | bytes) -> None:
        """Withdraw the claim; if Redis is unavailable, it stays until it expires."""
        if (directory := self.directory) is None:
            return
        record = self._record(session)
        with suppress(RedisUnreachable):
            await directory.ask(partial(directory.claims.withdraw, record=record))

    def _record(self, session: str | bytes) -> Record:
        """The record of a session (its id or digest) for this principal."""
        return session_digest(session), self.principal


def _id_of(session: Any) -> str | None:
    id = session.get("sessionId") if isinstance(session, dict) else None
    return id if isinstance(id, str) else None


def _check(session: str, verdict: Verdict) -> None:
    """Raise `RequestError` if the session is not accessible to the principal."""
    if verdict == "theirs":
        raise _not_found(session)
    if verdict == "unknown":
        raise _cannot_tell(session)


def session_in_params(params: Payload | None) -> str | None:
    """The session id in a client's message. Raises `RequestError` if it is ambiguous."""
    try:
        return unambiguous_session_id(params)
    except AmbiguousSessionId as exc:
        text = f"Invalid params: ambiguous session id: {exc}"
        raise RequestError(INVALID_PARAMS, text) from None


def _nested_sessions(method: str, params: Payload | None, session: str | None) -> set[str]:
    try:
        return nested_session_ids(params, session, opens=method in SESSION_SETUP_METHODS)
    except AmbiguousSessionId as exc:
        raise RequestError(INVALID_PARAMS, f"Invalid params: session id in _meta: {exc}") from None


def _cannot_tell(session: str) -> RequestError:
    text = "The owner of this session cannot be looked up now; try again in some seconds"
    return RequestError(INTERNAL_ERROR, text, {"sessionId": session})


def _cannot_record() -> RequestError:
    text = "The owner of a new session cannot be recorded now; try again in some seconds"
    return RequestError(INTERNAL_ERROR, text)


def _not_found(session: str) -> RequestError:
    return RequestError(RESOURCE_NOT_FOUND, "Resource not found", {"sessionId": session})


def _is_path(session: str) -> bool:
    """Whether an agent that uses the id as a file name may open the file of another id."""
    return _PATH.search(session) is not None
