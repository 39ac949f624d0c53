"""Turns that a plugin blocks after their cancellation: detection and forced end.

A plugin blocks a prompt while its handler is busy with anything but waiting for the successor's
response, and while the prompt is queued in a lane. It also blocks a turn if its cancellation, or
the end of the turn, is queued in a lane that a handler holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from conductor.acp import PROMPT, SESSION_CANCEL, session_id_of
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.plugins.handler_call import HandlerCall
from conductor.plugins.lane import LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.plugin_port import PluginPort
from conductor.plugins.scheduler import LaneScheduler

__all__ = ["blocks_request", "blocks_turn", "busy_calls", "end_turn"]

Reply: TypeAlias = tuple[Payload | None, Payload | None]
"""A raw result or a raw error."""


def blocks_turn(scheduler: LaneScheduler, session: str) -> bool:
    """Whether this plugin blocks a turn of this session, if the turn was cancelled."""
    toward_agent = _in_lane(scheduler, scheduler.client_port)
    return (
        bool(_busy_handlers(scheduler, session))
        or any(_is(item, PROMPT, session) for item in scheduler.dispatcher.deferred.items())
        or any(_is(item, PROMPT, session) for item in toward_agent)
        or any(_is(item, SESSION_CANCEL, session) for item in toward_agent)
        or any(_ends_turn(item, session) for item in _in_lane(scheduler, scheduler.agent_port))
    )


def blocks_request(scheduler: LaneScheduler, method: str | None) -> bool:
    """Whether a request of this method (`None`: any) was cancelled and its handler continues."""
    return any(
        method in (None, call.method) and call.cancelled and not handler_call.awaited
        for call, handler_call in scheduler.dispatcher.running.items()
    )


def busy_calls(scheduler: LaneScheduler) -> set[HandlerCall]:
    """The handlers of requests, and those that hold a lane, that wait for no response."""
    calls = {*scheduler.dispatcher.running.values(), *scheduler.last_handlers.values()}
    return {call for call in calls if not call.done and not call.awaited}


def end_turn(scheduler: LaneScheduler, session: str, answer: Callable[[str], Reply]) -> bool:
    """Answer the prompts of this session that are blocked here; False if there are none.

    A queued cancellation is forwarded past the handler that holds its lane.
    """
    prompts = 0
    for handler_call in _busy_handlers(scheduler, session):
        scheduler.dispatcher.answer_for(handler_call, *answer(PROMPT))
        prompts += 1
    for item in scheduler.dispatcher.deferred.items():
        if _is(item, PROMPT, session):
            scheduler.dispatcher.deferred.answer(item.call, *answer(PROMPT))
            prompts += 1
    port = scheduler.client_port
    for waiting in port.lane.waiting():
        if not _is(waiting, PROMPT, session) and not _is(waiting, SESSION_CANCEL, session):
            continue
        if type(waiting) is LaneNotification:
            port.lane.remove(waiting)
            scheduler.agent_port.neighbour.notify(waiting.method, waiting.params)
        elif type(waiting) is LaneRequest and not waiting.answered:
            waiting.answered = True
            port.queued.pop(waiting.call, None)
            port.neighbour.respond(waiting.call, *answer(PROMPT))
            prompts += 1
    return prompts > 0


def _busy_handlers(scheduler: LaneScheduler, session: str) -> list[HandlerCall]:
    """Handlers of prompts of this session that do not wait for the successor's response."""
    return [
        handler_call
        for handler_call in scheduler.dispatcher.running.values()
        if _is(handler_call.item, PROMPT, session)
        and not (handler_call.response_state is not None and handler_call.response_state.settled)
        and not any(call.method == PROMPT for call in handler_call.awaited)
    ]


def _in_lane(scheduler: LaneScheduler, port: PluginPort) -> list[LaneItem]:
    """The messages of a port's lane: the one being handled, then those queued."""
    holder = scheduler.last_handlers.get(port.lane)
    busy = [] if holder is None or holder.done or holder.lane is not port.lane else [holder.item]
    waiting = port.lane.waiting()
    return [
        *busy,
        *(each for each in waiting if type(each) is not LaneRequest or not each.answered),
    ]


def _is(item: LaneItem, method: str, session: str) -> bool:
    if type(item) is LaneResponse or item.method != method:
        return False
    return session_id_of(item.params) == session


def _ends_turn(item: LaneItem, session: str) -> bool:
    """Whether it may end a turn: the response to a prompt, or in version 2 an update."""
    if type(item) is LaneResponse:
        return item.call.method == PROMPT
    return _is(item, SESSION_UPDATE, session) and b"state_update" in (item.params or b"")
