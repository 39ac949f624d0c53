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
client, and so does one that a question of the agent names. It counts for the quota, and is
forgotten when its parent is deleted: agents delete both.

Many agents keep a session in a file of its name. So ids that differ only in capitals or composition
count as one, and an id that is a path (`./1`, `a/../1`) is refused unless the agent assigned it.

Rules: unreadable params are refused; a session is recorded before the agent gets the request; a
principal at its quota is refused further sessions, and never displaces a record, its own included;
if the directory does not answer, requests that need it are refused.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
from conductor.jsonrpc.messages import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Payload
from conductor.log import get_logger
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Forward, Proxy, RequestError, on
from conductor.proxy.handlers import of_kinds
from conductor.routing.component import Component
from conductor.server.cluster.claims import Record, Verdict
from conductor.server.cluster.directory import RedisUnreachable, SessionDirectory

if TYPE_CHECKING:
    from conductor.chain.chain import Chain

__all__ = ["SessionAccess", "restrict_sessions", "session_in_params"]

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


@attrs.define(eq=False)
class SessionAccess:
    """The principals of each session. A record takes about 0.2 kB, however long the id is."""

    most_each: int = 10_000
    """Sessions of one principal."""
    _principals: dict[bytes, tuple[str, ...]] = attrs.field(factory=dict, init=False)
    """By the digest of the session's id."""
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    """Number of sessions by principal, those being set up included."""

    def allow(self, session: str, principal: str) -> bool:
        """Whether the session belongs to this principal, or to none."""
        principals = self._principals.get(_digest(session))
        return principals is None or principal in principals

    def has(self, session: str, principal: str) -> bool:
        """Whether the session is recorded for this principal."""
        return principal in self._principals.get(_digest(session), ())

    def records(self) -> list[Record]:
        return [(key, each) for key, names in self._principals.items() for each in names]

    def claim(self, session: str, principal: str) -> bool:
        """Record the session for this principal; true if it was not recorded. Raises `RequestError`
        at the quota."""
        key = _digest(session)
        principals = self._principals.get(key, ())
        if principal in principals:
            return False
        self._check_quota(principal)
        self._principals[key] = (*principals, principal)
        self._counts[principal] += 1
        return True

    def release(self, session: str, principal: str) -> None:
        """Remove the record of the session for this principal."""
        key = _digest(session)
        principals = self._principals.get(key, ())
        if principal not in principals:
            return
        if left := tuple(each for each in principals if each != principal):
            self._principals[key] = left
        else:
            del self._principals[key]
        self._subtract(principal)

    @contextmanager
    def reserve(self, principal: str) -> Iterator[None]:
        """Reserve a place in the principal's quota. Raises `RequestError` if there is none."""
        self._check_quota(principal)
        self._counts[principal] += 1
        try:
            yield
        finally:
            self._subtract(principal)

    def _check_quota(self, principal: str) -> None:
        if self._counts[principal] >= self.most_each:
            data = {"limit": self.most_each, "option": "--max-sessions-each"}
            text = "Too many sessions of one client; delete some (session/delete)"
            raise RequestError(INVALID_REQUEST, text, data)

    def _subtract(self, principal: str) -> None:
        self._counts[principal] -= 1
        if not self._counts[principal]:
            del self._counts[principal]


def restrict_sessions(
    chain: Chain, owners: SessionAccess, principal: str, directory: SessionDirectory | None = None
) -> None:
    """Restrict a chain, before it runs, to the sessions of this principal. `directory` is the
    session directory of several nodes, if there is one."""
    make, access_check = chain.make, _SessionGuard(owners, principal, directory)

    def make_with_guard() -> Sequence[Component]:
        first = PluginComponent("sessions", _SessionGuard(owners, principal, directory), "proxy")
        return [first, *make()]

    chain.make = make_with_guard
    chain.client.access_check = access_check.check


@attrs.define(eq=False)
class _SessionGuard(Proxy):
    """Session access check of one client."""

    owners: SessionAccess
    principal: str
    directory: SessionDirectory | None = None
    _children: dict[str, set[str]] = attrs.field(factory=dict, init=False)
    """Sessions of subagents by the session that started them."""

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
        with self.owners.reserve(self.principal):
            result: bytes = await forward()
        try:
            session = unambiguous_session_id(result)
        except AmbiguousSessionId as exc:
            text = f"The agent's response has an ambiguous session id: {exc}"
            raise RequestError(INTERNAL_ERROR, text) from None
        if session is not None:
            self.owners.claim(session, self.principal)
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
        # Of two concurrent requests, the first may have failed and released the session.
        if self.owners.claim(session, self.principal):
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
            for each in (session, *self._descendants(session)):
                self.owners.release(each, self.principal)
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

    @of_kinds("subagent_update")
    @on("session/update")
    async def announce(self, params: bytes, forward: Forward) -> None:
        """Record the session of a subagent before the client learns of it; at the quota, neither
        happens."""
        if (announced := announced_subagent(params)) is not None:
            parent, child = announced
            try:
                await self._claim_child(child)
            except RequestError as exc:
                log.warning("session of a subagent refused", session=child, reason=exc.message)
                return
            self._children.setdefault(parent, set()).add(child)
        await forward()

    @on("session/request_permission")
    @on("elicitation/create")
    async def ask(self, params: bytes, forward: Forward) -> bytes:
        if (session := session_id_of(params)) is not None:
            await self._claim_child(session)
        return bytes(await forward())

    async def _claim_child(self, session: str) -> None:
        """Raises `RequestError` at the quota. If Redis is unavailable, the claim is written when it
        is back."""
        if self.owners.claim(session, self.principal):
            with suppress(RequestError):
                await self._publish(session)

    def _descendants(self, session: str) -> Iterator[str]:
        """All sessions of subagents below a session, which are forgotten."""
        for child in self._children.pop(session, ()):
            yield child
            yield from self._descendants(child)

    # -- the directory of several nodes ------------------------------------------------------------

    async def _claim(self, session: str) -> bool:
        """Claim a session at all nodes; true if it was free. Raises `RequestError` if it belongs to
        another principal, or its owner is unknown."""
        directory = self.directory
        if directory is None or self.owners.has(session, self.principal):
            return False
        record = (_digest(session), self.principal)
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
        records = [(_digest(each), self.principal) for each in sessions]
        return await directory.ask(partial(directory.claims.look_up, records=records))

    async def _publish(self, session: str) -> None:
        """Write the claim to the directory before the client gets the session id: until then any
        principal may load it at other nodes. Raises `RequestError` if Redis is unavailable; the
        claim is then written when Redis is back."""
        if (directory := self.directory) is None:
            return
        records = [(_digest(session), self.principal)]
        try:
            await directory.ask(partial(directory.claims.write, records=records))
        except RedisUnreachable:
            directory.claims.is_stale = True
            raise _cannot_record() from None

    async def _delete_own_keys(self, session: str) -> None:
        """Withdraw the claim; if Redis is unavailable, it stays until it expires."""
        if (directory := self.directory) is None:
            return
        record = (_digest(session), self.principal)
        with suppress(RedisUnreachable):
            await directory.ask(partial(directory.claims.withdraw, record=record))


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
    """Whether the id, as the name of a file, is another file's name, too."""
    return _PATH.search(session) is not None


def _digest(session: str) -> bytes:
    encoded = _folded(session).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=16).digest()


def _folded(session: str) -> str:
    if session.isascii():
        return session.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", session).casefold())
