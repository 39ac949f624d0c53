"""Renames the sessions that a restarted agent has set up anew. Pure.

A session in which no prompt was sent is set up anew if the agent can neither resume nor load it.
The agent gives it another id; the client, the chain and the session log keep the first one. So the
ids are exchanged where messages are read from the agent's connection (`SessionNames` takes the
place of the link as its receiver) and where they are written to it (`to_agent`), in each member
with a name that ends in `sessionId` or `session_id`, at any depth: results of `session/list`,
`_meta` and subagents name sessions too.

Two names are always exchanged with each other. An agent that counts its sessions may give the next
one an id that the client already has: the client then gets the id that has become free, and no id
stands for two sessions. Without a renamed session there is no `SessionNames`, and no cost.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Final, overload

import msgspec

from conductor.acp import MAX_AGENTS_ID, session_id_of
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.connection import Receiver
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.malformed import Malformed
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch

__all__ = ["SessionNames"]

_ID: Final = re.compile(rb'(?s)(ession(?:I|_i)d"[ \t\r\n]*:[ \t\r\n]*)("(?:[^"\\]++|\\.)*+")')
"""In JSON text: the end of a member's name, and its value. Quotes inside of strings are escaped."""
_MAX_NAMES: Final = 10_000
"""Renamed sessions of one chain; a further one is lost."""


class SessionNames:
    """The receiver of an agent's connection while sessions have other ids there.

    `link` gets all messages, with the client's ids; `sessions` are the ids of the open sessions.
    """

    __slots__ = ("_link", "_of_agent", "_of_client", "_sessions", "awaited")

    def __init__(self, link: Receiver, sessions: Container[str]) -> None:
        self._link = link
        self._sessions = sessions
        self._of_agent: dict[str, str] = {}
        """The agent's ids by the client's."""
        self._of_client: dict[str, str] = {}
        self.awaited: str | None = None
        """The session that the response to `session/new` is for. Until then, updates of unknown
        sessions are dropped: they may be of this one, under an id that is not known yet."""

    @property
    def are_equal(self) -> bool:
        """Whether no session has another id at the agent."""
        return not self._of_agent

    def agents_id(self, session: str) -> str:
        """The agent's id of a session of the client."""
        return self._of_agent.get(session, session)

    def to_agent(self, payload: Payload | None) -> Payload | None:
        """Raw params with the agent's ids."""
        return _renamed(payload, self._of_agent)

    def _exchange(self, awaited: str, session: str | None) -> None:
        """The agent has given the awaited session the id that `session` stood for so far."""
        if (
            session is None
            or session in self._sessions
            or len(session) > MAX_AGENTS_ID
            or len(self._of_agent) >= _MAX_NAMES
        ):
            return
        first, second = map(self.agents_id, (awaited, session))
        for client_id, agent_id in ((awaited, second), (session, first)):
            self._of_agent[client_id], self._of_client[agent_id] = agent_id, client_id

    # -- Receiver ----------------------------------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._link.on_request(call, method, _renamed(params, self._of_client))

    def on_notification(self, method: str, params: Payload | None) -> None:
        params = _renamed(params, self._of_client)
        is_awaited = self.awaited is not None and method == SESSION_UPDATE
        if not is_awaited or session_id_of(params) in self._sessions:
            self._link.on_notification(method, params)

    def on_notifications(self, run: NotificationBatch) -> None:
        if self.awaited is None:
            renamed = [_renamed(each, self._of_client) for each in run.params]
            self._link.on_notifications(NotificationBatch(run.method, renamed))
            return
        for each in run.params:
            self.on_notification(run.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if self.awaited is not None and call.method == "session/new":
            self._exchange(self.awaited, session_id_of(_renamed(result, self._of_client)))
            self.awaited = None
        result, error = _renamed(result, self._of_client), _renamed(error, self._of_client)
        self._link.on_response(call, result, error)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        self._link.on_malformed(frame, call)


@overload
def _renamed(payload: Payload, names: Mapping[str, str]) -> Payload: ...
@overload
def _renamed(payload: None, names: Mapping[str, str]) -> None: ...
@overload
def _renamed(payload: Payload | None, names: Mapping[str, str]) -> Payload | None: ...
def _renamed(payload: Payload | None, names: Mapping[str, str]) -> Payload | None:
    """Raw JSON with the other session ids; everything else keeps its bytes."""

    def replace(match: re.Match[bytes]) -> bytes:
        try:
            name = names.get(decode_value(match[2], type=str))
        except DECODE_ERRORS:  # a lone surrogate
            return match[0]
        return match[0] if name is None else match[1] + msgspec.json.encode(name)

    return None if payload is None else _ID.sub(replace, bytes(payload))
