"""Cancelled turns and requests that a plugin blocks: detection and forced end.

A plugin blocks a request while its handler waits for no response, after `Plugin.defer`, and while
it is queued in a lane; a prompt also while its handler waits for anything but the successor's
answer to it. It blocks a turn, too, if the cancellation or the end of the turn is queued in a lane
that a handler holds.
"""

from __future__ import annotations

import attrs

from conductor.acp import PROMPT, SESSION_CANCEL, session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.plugins.handler_call import HandlerCall
from conductor.plugins.lane import LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.plugin_port import PluginPort
from conductor.plugins.scheduler import LaneScheduler
from conductor.routing.component import Blocker
from conductor.supervision.cancel_watch import cancelled_answer

__all__ = ["BlockedTurns", "busy_calls"]


@attrs.frozen(eq=False)
class BlockedTurns(Blocker):
    """What one plugin has of cancelled turns and requests."""

    name: str
    scheduler: LaneScheduler

    def cancelled_since(self, session: str) -> float | None:
        to_agent, to_client = map(self._lane, self.scheduler.ports)
        blocks = (
            bool(self._prompts(session))
            or any(_is(item, SESSION_CANCEL, session) for item in to_agent)
            or any(_ends_turn(item, session) for item in to_client)
        )
        return float("-inf") if blocks else None

    def end_turn(self, session: str, until: float, problem: str, *, version_2: bool) -> bool:
        """A queued cancellation is forwarded past the handler that holds its lane."""
        prompts = self._prompts(session)
        for call in prompts:
            self.end_request(call, *cancelled_answer(PROMPT, self.name, version_2=version_2))
        client_port, agent_port = self.scheduler.ports
        for item in client_port.lane.waiting():
            if type(item) is LaneNotification and _is(item, SESSION_CANCEL, session):
                client_port.lane.remove(item)
                agent_port.neighbour.notify(item.method, item.params)
        return bool(prompts)

    def requests(self) -> list[InFlightRequest]:
        return [call for call in self._held() if call.cancelled and not self._awaited(call)]

    def end_request(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if not self.scheduler.dispatcher.answer_for(call, result, error):
            for port in self.scheduler.ports:
                for item in port.lane.waiting():
                    if type(item) is LaneRequest and item.call is call:
                        item.answered = True
                        port.queued.pop(call, None)
                        port.neighbour.respond(call, result, error)

    def _held(self) -> dict[InFlightRequest, LaneItem]:
        """The unanswered requests that handlers have, that are deferred, or that are queued."""
        items = [
            *(
                each.item
                for each in self.scheduler.dispatcher.running.values()
                if each.response_state is not None and not each.response_state.answered
            ),
            *(item for port in self.scheduler.ports for item in port.lane.waiting()),
        ]
        return {
            item.call: item for item in items if type(item) is LaneRequest and not item.answered
        }

    def _awaited(self, call: InFlightRequest) -> frozenset[InFlightRequest]:
        """The requests that the handler of a request waits for."""
        handler_call = self.scheduler.dispatcher.running.get(call)
        return frozenset() if handler_call is None else handler_call.awaited

    def _prompts(self, session: str) -> list[InFlightRequest]:
        """The prompts of this session that are blocked here."""
        found = [call for call, item in self._held().items() if _is(item, PROMPT, session)]
        return [
            call for call in found if PROMPT not in (each.method for each in self._awaited(call))
        ]

    def _lane(self, port: PluginPort) -> list[LaneItem]:
        """The messages of a port's lane: the one being handled, then those queued."""
        call = self.scheduler.last_handlers.get(port.lane)
        is_held = call is not None and not call.done and call.lane is port.lane
        return [*([call.item] if call is not None and is_held else []), *port.lane.waiting()]


def busy_calls(scheduler: LaneScheduler) -> set[HandlerCall]:
    """The handlers of requests, and those that hold a lane, that wait for no response."""
    calls = {*scheduler.dispatcher.running.values(), *scheduler.last_handlers.values()}
    return {call for call in calls if not call.done and not call.awaited}


def _is(item: LaneItem, method: str, session: str) -> bool:
    if type(item) is LaneResponse or item.method != method:
        return False
    return session_id_of(item.params) == session


def _ends_turn(item: LaneItem, session: str) -> bool:
    """Whether it may end a turn: the response to a prompt, or in version 2 an update."""
    if type(item) is LaneResponse:
        return item.call.method == PROMPT
    return _is(item, SESSION_UPDATE, session) and b"state_update" in (item.params or b"")
