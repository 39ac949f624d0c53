"""Renames sessions: of a restarted agent that has set them up anew, or with the id of another
chain's. Pure.

A session in which no prompt was sent is set up anew if the agent can neither resume nor load it.
The agent gives it another id; the client, the chain and the session log keep the first one. A new
session of a further chain may have the id of an open one (`session_branches`). So the ids are
exchanged next to the agent's connection, in each member with a name that ends in
`sessionId` or `session_id`, at any depth: results of `session/list`, `_meta` and subagents name
sessions too.

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
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.routing.stage import (
    EVERY,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
)

__all__ = ["SessionNames"]

_ID: Final = re.compile(rb'(?s)(ession(?:I|_i)d"[ \t\r\n]*:[ \t\r\n]*)("(?:[^"\\]++|\\.)*+")')
"""In JSON text: the end of a member's name, and its value. Quotes inside of strings are escaped."""
_MAX_NAMES: Final = 10_000
"""Renamed sessions of one chain; a further one is lost."""


class SessionNames(Stage):
    """The stage before an agent while sessions have other ids there.

    `sessions` are the ids of the open sessions, for the client.
    """

    __slots__ = ("_of_agent", "_of_client", "_sessions", "awaited")

    name = "session names"
    sent: frozenset[str] = EVERY
    received: frozenset[str] = EVERY

    def __init__(self, sessions: Container[str]) -> None:
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

    def of_client(self, payload: Payload) -> Payload:
        """Raw JSON of the agent with the client's ids."""
        return _renamed(payload, self._of_client)

    def exchange(self, awaited: str, session: str | None) -> None:
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

    # -- Stage -------------------------------------------------------------------------------------

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        forward(call, method, _renamed(params, self._of_agent))

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        forward(method, _renamed(params, self._of_agent))

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        forward(call, method, _renamed(params, self._of_client))

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        params = _renamed(params, self._of_client)
        is_awaited = self.awaited is not None and method == SESSION_UPDATE
        if not is_awaited or session_id_of(params) in self._sessions:
            forward(method, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if self.awaited is not None and call.method == "session/new":
            self.exchange(self.awaited, session_id_of(_renamed(result, self._of_client)))
            self.awaited = None
        forward(call, _renamed(result, self._of_client), _renamed(error, self._of_client))


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
