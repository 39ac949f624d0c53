"""Requests that a plugin will not answer any more, since it has ended or has failed.

In: requests, as they are aborted. Out: their errors, once it is known why the plugin has ended.
"""

from __future__ import annotations

import attrs
import msgspec

from conductor.acp import session_id_of
from conductor.plugins.lane import LaneRequest
from conductor.plugins.plugin_port import PluginPort
from conductor.routing.failure_errors import CHAIN_ENDED, FailureErrors, answer_of_gone

__all__ = ["AbortedRequests"]


@attrs.define(eq=False, repr=False)
class AbortedRequests:
    """The aborted requests of one plugin."""

    _errors: FailureErrors | None = attrs.field(default=None, init=False)
    """The errors for them, once known."""
    _waiting: list[tuple[PluginPort, LaneRequest, bool]] = attrs.field(factory=list, init=False)
    """Requests to be answered with `_errors`, and whether the agent may have got each."""

    def add(self, port: PluginPort, item: LaneRequest, delivered: bool) -> None:
        """Answer a request that has come in through `port`, now or in `answer`."""
        if self._errors is None:
            self._waiting.append((port, item, delivered))
        else:
            error = self._errors.answer(item.method, delivered=delivered)
            port.neighbour.respond(item.call, *answer_of_gone(item.method, error))

    def answer(self, failure: FailureErrors | None = None) -> None:
        """Answer aborted requests, now and from now on, with the errors of `failure` or "chain
        ended".

        After a failure, delivered prompts are also cancelled with `session/cancel`: their turns
        have no client that waits for them.
        """
        if self._errors is not None:
            return
        self._errors = failure or CHAIN_ENDED
        waiting, self._waiting = self._waiting, []
        for port, item, delivered in waiting:
            error = self._errors.answer(item.method, delivered=delivered)
            port.neighbour.respond(item.call, *answer_of_gone(item.method, error))
            session = session_id_of(item.params) if item.method == "session/prompt" else None
            if failure is not None and delivered and session is not None:
                params = msgspec.json.encode({"sessionId": session})
                port.other.neighbour.notify("session/cancel", params)
