"""Records of the principals of each session, in memory; see `session_access`."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from conductor.jsonrpc.messages import INVALID_REQUEST
from conductor.proxy import RequestError
from conductor.server.cluster.claims import Record

__all__ = ["SessionPrincipals", "session_digest"]


@attrs.define(eq=False)
class SessionPrincipals:
    """The principals of each session. A record takes about 0.2 kB, however long the id is."""

    most_each: int = 10_000
    """Sessions of one principal."""
    _principals: dict[bytes, tuple[str, ...]] = attrs.field(factory=dict, init=False)
    """By the digest of the session's id."""
    _children: set[bytes] = attrs.field(factory=set, init=False)
    """Digests of sessions that only an agent's messages named; each has one principal."""
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    """Number of sessions by principal, those being set up included."""

    def allow(self, session: str, principal: str) -> bool:
        """Whether the session belongs to this principal, or to none."""
        principals = self._principals.get(session_digest(session))
        return principals is None or principal in principals

    def has(self, session: str, principal: str) -> bool:
        """Whether the session is recorded for this principal."""
        return principal in self._principals.get(session_digest(session), ())

    def records(self) -> list[Record]:
        return [(key, each) for key, names in self._principals.items() for each in names]

    def claim(self, session: str, principal: str) -> bool:
        """Record the session for this principal; true if it was not recorded. Raises `RequestError`
        at the quota."""
        key = session_digest(session)
        principals = self._principals.get(key, ())
        if principal in principals:
            return False
        self._check_quota(principal)
        self._principals[key] = (*principals, principal)
        self._counts[principal] += 1
        return True

    def claim_child(self, session: str, principal: str) -> bool:
        """Record a session that only a message of this principal's agent names, unless any
        principal has it; true if it was recorded. Raises `RequestError` at the quota."""
        key = session_digest(session)
        if key in self._principals:
            return False
        self._children.add(key)
        try:
            return self.claim(session, principal)
        except RequestError:
            self._children.discard(key)
            raise

    def is_child(self, session: str, principal: str) -> bool:
        """Whether only messages of this principal's agent have named the session."""
        return session_digest(session) in self._children and self.has(session, principal)

    def withdraw_child(self, session: str, principal: str) -> None:
        """Remove what `claim_child` recorded, unless the session was assigned since."""
        if session_digest(session) in self._children:
            self.release(session, principal)

    def assign(self, session: str, principal: str) -> bool:
        """Record a session that the agent has created or loaded for this principal; true if it was
        not recorded. A claim of another, of which the agent has only named it, is withdrawn. Raises
        `RequestError` at the quota."""
        key = session_digest(session)
        if key in self._children:
            for other in self._principals.get(key, ()):
                if other != principal:
                    self.release(session, other)
            self._children.discard(key)
        return self.claim(session, principal)

    def release(self, session: str | bytes, principal: str) -> None:
        """Remove the record of the session (its id or digest) for this principal."""
        key = session_digest(session)
        principals = self._principals.get(key, ())
        if principal not in principals:
            return
        if left := tuple(each for each in principals if each != principal):
            self._principals[key] = left
        else:
            del self._principals[key]
            self._children.discard(key)
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


def session_digest(session: str | bytes) -> bytes:
    """The key of a session's record; ids that differ only in capitals or composition have one.
    Bytes are such a key already."""
    if isinstance(session, bytes):
        return session
    encoded = _folded(session).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=16).digest()


def _folded(session: str) -> str:
    if session.isascii():
        return session.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", session).casefold())
