"""Selects the event stream for each message to a Streamable HTTP client. Pure.

A message that names a session goes to the session's stream, any other to the connection's. A
response follows its request, except those that set up a session: they go to the connection's stream
(RFD, "Adds an HTTP Transport"), which the client reads before it has a stream for the session.

A client that sets up a session without the header and without a stream for it (Python SDK,
`session/load`) gets all messages of the session on the connection's stream, which keeps the order.

The session of a subagent, which the agent announces, has the stream of the session that started it,
unless the client opens one for it. One that the agent never announces has the connection's stream:
the client would open no other. So have those with long ids, and those nested too deep: what an
agent can make the server keep, or do for each message, is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs
from msgspec import UNSET

from conductor.acp import (
    MAX_AGENTS_ID,
    SESSION_CREATING_METHODS,
    SESSION_END_METHODS,
    SESSION_SETUP_METHODS,
    announced_subagent,
    session_id_of,
)
from conductor.bounded_dict import BoundedDict
from conductor.jsonrpc.codec import decode_message
from conductor.jsonrpc.messages import Id, Message, Payload
from conductor.server.http.parse_request import PostedMessage

__all__ = ["Route", "StreamRouter"]

_CONNECTION_STREAM_METHODS: Final = SESSION_SETUP_METHODS | {"session/delete"}
_MAX_SUBAGENTS: Final = 2000
"""Sessions of subagents that are remembered; the oldest are forgotten."""
_MAX_LEVELS: Final = 32
"""Sessions above each other, that of the user included."""


@attrs.frozen
class Route:
    """Destination of a message to the client."""

    message: Message | None = None
    session: str | None = None
    """Session of the stream; `None`: the connection's stream."""
    closed: str | None = None
    """Session that this response closes or deletes."""


@attrs.frozen
class _SessionRequest:
    """A request in flight about a session."""

    method: str
    session: str
    made_streamless: bool


@attrs.define(eq=False)
class StreamRouter:
    """Router of one client."""

    has_stream: Callable[[str], bool] = lambda _: False
    """Whether a session of a subagent has a stream of its own."""
    is_known: Callable[[str], bool] = lambda _: True
    """Whether a session is open, was closed, or has a stream."""
    streamless: set[str] = attrs.field(factory=set)
    """Sessions with messages on the connection's stream, until they are closed."""
    parents: BoundedDict[str, str] = attrs.field(
        factory=lambda: BoundedDict(_MAX_SUBAGENTS), init=False
    )
    """Parent session of each subagent's session."""
    unannounced: BoundedDict[str, None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_SUBAGENTS), init=False
    )
    """Sessions of messages of the agent that were not known and that nothing was about to open."""
    _creating: set[Id] = attrs.field(factory=set, init=False)
    """Ids of requests in flight that open sessions with new ids."""
    _open: dict[Id, list[_SessionRequest]] = attrs.field(factory=dict)
    """Requests in flight about sessions, by id; ids may repeat."""

    def record_request(self, posted: PostedMessage, *, streaming: bool) -> None:
        """Record a message of the client. `streaming`: the session has an open stream."""
        if not posted.is_request:
            return
        assert posted.message is not None
        if posted.method in SESSION_CREATING_METHODS:
            self._creating.add(_key(posted.message))
        if posted.session is None:
            return
        assert posted.method is not None
        streamless = (
            posted.method in SESSION_SETUP_METHODS and not posted.by_header and not streaming
        )
        made_streamless = streamless and posted.session not in self.streamless
        if made_streamless:
            self.streamless.add(posted.session)
        asked = _SessionRequest(posted.method, posted.session, made_streamless)
        self._open.setdefault(_key(posted.message), []).append(asked)

    def route(self, line: bytes) -> Route:
        """Destination of a message of the chain."""
        message = decode_message(line)
        if message is None:
            return Route()
        if message.method is not UNSET:
            params = message.params if message.params is not UNSET else None
            self._note_subagent(params)
            session = session_id_of(params)
            self._note_unannounced(session)
            return Route(message, self._stream(session))
        asked = self._answered(message)
        if asked is None:
            return Route(message)
        failed = message.error is not UNSET
        closed = asked.session if asked.method in SESSION_END_METHODS and not failed else None
        named = None if asked.method in _CONNECTION_STREAM_METHODS else asked.session
        route = Route(message, self._stream(named), closed)
        if closed is not None or (asked.made_streamless and failed):
            self.streamless.discard(asked.session)
        return route

    def _note_subagent(self, params: Payload | None) -> None:
        announced = announced_subagent(params)
        if announced is None or announced[1] in self.parents:
            return  # a subagent keeps its parent
        parent, child = announced
        above = list(self._upward(parent))
        if (
            child in above
            or len(above) >= _MAX_LEVELS
            or max(len(parent), len(child)) > MAX_AGENTS_ID
        ):
            return
        self.parents[child] = parent

    def _note_unannounced(self, session: str | None) -> None:
        if session is None or session in self.unannounced or len(session) > MAX_AGENTS_ID:
            return
        if session in self.parents or self.is_known(session) or self._is_being_set_up(session):
            return
        self.unannounced[session] = None

    def _is_being_set_up(self, session: str) -> bool:
        """Whether an open request may open this session."""
        asked = (each for requests in self._open.values() for each in requests)
        return bool(self._creating) or any(
            each.session == session and each.method in SESSION_SETUP_METHODS for each in asked
        )

    def _upward(self, session: str) -> Iterator[str]:
        """The session, its parent and so on, `_MAX_LEVELS` at most: an agent that announces
        children first can make more."""
        for _ in range(_MAX_LEVELS):
            yield session
            if session not in self.parents:
                return
            session = self.parents[session]

    def _stream(self, session: str | None) -> str | None:
        if session is None:
            return None
        for each in self._upward(session):
            if each not in self.parents or self.has_stream(each):
                if each != session:  # its own parent may be forgotten
                    self._note_unannounced(each)
                return each if self._may_have_stream(each) else None
        return None

    def _may_have_stream(self, session: str) -> bool:
        if session in self.streamless:
            return False
        if session in self.unannounced:
            return self.is_known(session)
        return (
            len(session) <= MAX_AGENTS_ID
            or self.is_known(session)
            or self._is_being_set_up(session)
        )

    def _answered(self, message: Message) -> _SessionRequest | None:
        """Remove and return the request of a response."""
        self._creating.discard(_key(message))
        asked = self._open.get(_key(message))
        if not asked:
            return None
        first = asked.pop(0)
        if not asked:
            del self._open[_key(message)]
        return first


def _key(message: Message) -> Id:
    return None if message.id is UNSET else message.id
