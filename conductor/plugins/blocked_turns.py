"""Cancelled turns and requests that a plugin blocks: detection and forced end.

A plugin blocks a request while its handler waits for no response, after `Plugin.defer`, and while
it is queued in a lane; a prompt also while its handler waits for anything but the successor's
answer to it. It blocks a turn, too, if the cancellation or the end of the turn is queued in a lane
that a handler holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from conductor.acp import PROMPT, SESSION_CANCEL, session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.plugins.handler_call import HandlerCall
from conductor.plugins.lane import LaneItem, LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.plugin_port import PluginPort
from conductor.plugins.scheduler import LaneScheduler

__all__ = ["blocks_turn", "busy_calls", "cancelled_requests", "end_request", "end_turn"]

Reply: TypeAlias = tuple[Payload | None, Payload | None]
"""A raw result or a raw error."""


def blocks_turn(scheduler: LaneScheduler, session: str) -> bool:
    """Whether this plugin blocks a turn of this session, if the turn was cancelled."""
    return (
        any(_prompts(scheduler, session))
        or any(
            _is(item, SESSION_CANCEL, session) for item in _lane(scheduler, scheduler.client_port)
        )
        or any(_ends_turn(item, session) for item in _lane(scheduler, scheduler.agent_port))
    )


def end_turn(scheduler: LaneScheduler, session: str, reply: Reply) -> bool:
    """Answer the prompts of this session that are blocked here; False if there are none.

    A queued cancellation is forwarded past the handler that holds its lane.
    """
    prompts = list(_prompts(scheduler, session))
    for call in prompts:
        end_request(scheduler, call, reply)
    lane = scheduler.client_port.lane
    for item in lane.waiting():
        if type(item) is LaneNotification and _is(item, SESSION_CANCEL, session):
            lane.remove(item)
            scheduler.agent_port.neighbour.notify(item.method, item.params)
    return bool(prompts)


def cancelled_requests(scheduler: LaneScheduler) -> list[InFlightRequest]:
    """The cancelled requests that are blocked here."""
    running = scheduler.dispatcher.running
    return [
        call
        for call in _held(scheduler)
        if call.cancelled and not (call in running and running[call].awaited)
    ]


def end_request(scheduler: LaneScheduler, call: InFlightRequest, reply: Reply) -> None:
    """Answer a request that is blocked here, in the place of its handler."""
    dispatcher = scheduler.dispatcher
    if call in dispatcher.running:
        dispatcher.answer_for(dispatcher.running[call], *reply)
    elif not dispatcher.deferred.answer(call, *reply):
        for port in scheduler.ports:
            for item in port.lane.waiting():
                if type(item) is LaneRequest and item.call is call:
                    item.answered = True
                    port.queued.pop(call, None)
                    port.neighbour.respond(call, *reply)


def busy_calls(scheduler: LaneScheduler) -> set[HandlerCall]:
    """The handlers of requests, and those that hold a lane, that wait for no response."""
    calls = {*scheduler.dispatcher.running.values(), *scheduler.last_handlers.values()}
    return {call for call in calls if not call.done and not call.awaited}


def _held(scheduler: LaneScheduler) -> dict[InFlightRequest, LaneItem]:
    """The unanswered requests that handlers have, that are deferred, or that are queued."""
    dispatcher = scheduler.dispatcher
    items = [
        *(
            each.item
            for each in dispatcher.running.values()
            if each.response_state is not None and not each.response_state.settled
        ),
        *dispatcher.deferred.items(),
        *(item for port in scheduler.ports for item in port.lane.waiting()),
    ]
    return {item.call: item for item in items if type(item) is LaneRequest and not item.answered}


def _prompts(scheduler: LaneScheduler, session: str) -> Iterator[InFlightRequest]:
    """The prompts of this session that are blocked here."""
    running = scheduler.dispatcher.running
    for call, item in _held(scheduler).items():
        awaited = running[call].awaited if call in running else ()
        if _is(item, PROMPT, session) and not any(each.method == PROMPT for each in awaited):
            yield call


def _lane(scheduler: LaneScheduler, port: PluginPort) -> list[LaneItem]:
    """The messages of a port's lane: the one being handled, then those queued."""
    holder = scheduler.last_handlers.get(port.lane)
    busy = [] if holder is None or holder.done or holder.lane is not port.lane else [holder.item]
    return [*busy, *port.lane.waiting()]


def _is(item: LaneItem, method: str, session: str) -> bool:
    if type(item) is LaneResponse or item.method != method:
        return False
    return session_id_of(item.params) == session


def _ends_turn(item: LaneItem, session: str) -> bool:
    """Whether it may end a turn: the response to a prompt, or in version 2 an update."""
    if type(item) is LaneResponse:
        return item.call.method == PROMPT
    return _is(item, SESSION_UPDATE, session) and b"state_update" in (item.params or b"")
