"""Selects the event stream for each message to a Streamable HTTP client. Pure.

A message that names a session goes to the session's stream, any other to the connection's. A
response follows its request, except those that set up a session: they go to the connection's stream
(RFD, "Adds an HTTP Transport"), which the client reads before it has a stream for the session.

A client that sets up a session without the header and without a stream for it (Python SDK,
`session/load`) gets all messages of the session on the connection's stream, which keeps the order.

The session of a subagent, which the agent announces, has the stream of the session that started it,
unless the client opens one for it. One that the agent never announces has the connection's stream:
the client would open no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from msgspec import UNSET

from conductor.acp import (
    SESSION_CREATING_METHODS,
    SESSION_END_METHODS,
    SESSION_SETUP_METHODS,
    announced_subagent,
    session_id_of,
)
from conductor.jsonrpc.codec import decode_message
from conductor.jsonrpc.messages import Id, Message, Payload
from conductor.server.http.parse_request import PostedMessage

__all__ = ["Route", "StreamRouter"]

_CONNECTION_STREAM_METHODS: Final = SESSION_SETUP_METHODS | {"session/delete"}
_MAX_SUBAGENTS: Final = 10_000
"""Sessions of subagents that are remembered; the oldest are forgotten."""


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
    parents: dict[str, str] = attrs.field(factory=dict, init=False)
    """Of the session of each subagent, the one that started it."""
    unannounced: dict[str, None] = attrs.field(factory=dict, init=False)
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
        above = parent
        while above != child and above in self.parents:
            above = self.parents[above]
        if above != child:  # else they would be each other's
            self.parents[child] = parent
            if len(self.parents) > _MAX_SUBAGENTS:
                del self.parents[next(iter(self.parents))]

    def _note_unannounced(self, session: str | None) -> None:
        if session is None or self.is_known(session) or session in self.parents:
            return
        asked = (each for requests in self._open.values() for each in requests)
        if not self._creating and not any(
            each.session == session and each.method in SESSION_SETUP_METHODS for each in asked
        ):
            self.unannounced[session] = None
            if len(self.unannounced) > _MAX_SUBAGENTS:
                del self.unannounced[next(iter(self.unannounced))]

    def _stream(self, session: str | None) -> str | None:
        while session in self.parents and not self.has_stream(session):
            session = self.parents[session]
        if session in self.unannounced and not self.is_known(session):
            return None
        return None if session in self.streamless else session

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
