"""Which stream of a Streamable HTTP client a message of the agent goes to. Pure.

What names a session goes to that session's stream, everything else to the connection's; an answer
goes where its request belongs, but those that set up a session are told on the connection's stream
(RFD, "Adds an HTTP Transport"), where a client reads before it has one for the session.

A client that names a session without its header, and without a stream for it, has none (the Python
SDK's, after `session/load`): it is told everything of that session on the connection's stream, for
good, so that the order is one.
"""

from __future__ import annotations

from typing import Final

import attrs
from msgspec import UNSET

from conductor.frames import UNUSUAL, decode_envelope
from conductor.messages import Id, Message
from conductor.routing.recollection import SET_UPS, session_of
from conductor.server.requests import Posted

__all__ = ["Router"]

_TO_CONNECTION: Final = SET_UPS | {"session/delete"}


@attrs.define(eq=False)
class Router:
    """Of one client. A route is a session's id, or None for the connection's stream."""

    streamless: set[str] = attrs.field(factory=set)
    """Sessions that are told of on the connection's stream."""
    _routes: dict[Id, list[str]] = attrs.field(factory=dict)
    """The sessions that open requests belong to, by id; ids may repeat."""

    def asked(self, posted: Posted, *, streaming: bool) -> None:
        """The client sent this. `streaming`: it has a stream for the session."""
        if posted.session is None or not posted.is_request:
            return
        if posted.method in SET_UPS and not posted.by_header and not streaming:
            self.streamless.add(posted.session)
        if posted.method not in _TO_CONNECTION:
            assert posted.message is not None
            self._routes.setdefault(_key(posted.message), []).append(posted.session)

    def route(self, line: bytes) -> tuple[Message | None, str | None]:
        """A message of the agent, and where it goes."""
        try:
            message = decode_envelope(line)
        except UNUSUAL:
            return None, None
        session = self._session(message)
        return message, None if session in self.streamless else session

    def _session(self, message: Message) -> str | None:
        if message.method is not UNSET:
            return session_of(message.params) if message.params is not UNSET else None
        sessions = self._routes.get(_key(message))
        if not sessions:
            return None
        session = sessions.pop(0)
        if not sessions:
            del self._routes[_key(message)]
        return session


def _key(message: Message) -> Id:
    return None if message.id is UNSET else message.id
