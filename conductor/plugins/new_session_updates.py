"""Updates of a new session, withheld until the client has the response that opens it.

In: the responses that open sessions, and the updates that the plugin itself sends. Out: which
updates the agent port withholds; the scheduler releases them after the handler.
"""

from __future__ import annotations

import attrs

from conductor.acp import SESSION_CREATING_METHODS, session_id_of
from conductor.plugins.handler_call import ResponseState, current_handler_call
from conductor.plugins.lane import LaneResponse
from conductor.plugins.plugin_port import PluginPort

__all__ = ["NewSessionUpdates"]


@attrs.define(eq=False, repr=False)
class NewSessionUpdates:
    """Sessions that a handler is about to open, on the agent port of one plugin."""

    agent_port: PluginPort

    def opened_by(self, response_state: ResponseState, item: LaneResponse) -> None:
        """Withhold updates of a new session until the handler has forwarded the response that
        opens it."""
        self._withhold(response_state, session_id_of(item.result))

    def withholds_own(self, params: bytes) -> bool:
        """Withhold an update from the plugin for a session that the client does not know yet.

        If the handler creates the session itself, every session that it writes to may be the new
        one.
        """
        handler_call = current_handler_call.get()
        response_state = (
            None if handler_call is None or handler_call.done else handler_call.response_state
        )
        creates_session = (
            response_state is not None and response_state.call.method in SESSION_CREATING_METHODS
        )
        if not creates_session and not self.agent_port.withholds_updates:
            return False
        session = session_id_of(params)
        if session is None:
            return False
        if creates_session and response_state is not None:
            self._withhold(response_state, session)
        return self.agent_port.withhold_own_update(session, params)

    def _withhold(self, response_state: ResponseState, session: str | None) -> None:
        if session is not None and session not in response_state.created_sessions:
            response_state.created_sessions += (session,)
            self.agent_port.withhold_updates(session)
