"""Cancelled turns that a plugin in this process holds up, and their end.

A prompt is held up here while its handler is busy with anything but a successor's answer to it, and
while it waits in a lane. A turn is also held up where its cancellation, or its end, waits in a lane
that a handler does not let go of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from conductor.components.plugin_side import UPDATE, PluginSide
from conductor.components.turns import Turn
from conductor.components.workers import Workers
from conductor.connection.lanes import Answer, Item, Notification, Request
from conductor.messages import Payload
from conductor.routing.wire_side import PROMPT, SESSION_CANCEL
from conductor.session_ids import session_of

__all__ = ["end_turn", "holds_up_request", "holds_up_turn"]

Reply: TypeAlias = tuple[Payload | None, Payload | None]
"""A raw result or a raw error."""


def holds_up_turn(workers: Workers, session: str) -> bool:
    """Whether a turn of this session, if it was cancelled, goes on because of this plugin."""
    toward_agent = _in_lane(workers, workers.client_side)
    return (
        bool(_busy_handlers(workers, session))
        or any(_is(item, PROMPT, session) for item in workers.handling.deferred())
        or any(_is(item, PROMPT, session) for item in toward_agent)
        or any(_is(item, SESSION_CANCEL, session) for item in toward_agent)
        or any(_ends_turn(item, session) for item in _in_lane(workers, workers.agent_side))
    )


def holds_up_request(workers: Workers, method: str) -> bool:
    """Whether a request of this method was withdrawn, and its handler goes on."""
    return any(
        call.method == method and call.cancelled and not turn.waiting
        for call, turn in workers.handling.running.items()
    )


def end_turn(workers: Workers, session: str, answer: Callable[[str], Reply]) -> bool:
    """Answer the prompts of this session that are held up here; false if there is none.

    A cancellation that waits goes past the handler that holds its lane.
    """
    prompts = 0
    for turn in _busy_handlers(workers, session):
        workers.handling.answer_for(turn, *answer(PROMPT))
        prompts += 1
    for item in workers.handling.deferred():
        if _is(item, PROMPT, session):
            workers.handling.answer_deferred(item.call, *answer(PROMPT))
            prompts += 1
    side = workers.client_side
    for waiting in side.lane.waiting():
        if not _is(waiting, PROMPT, session) and not _is(waiting, SESSION_CANCEL, session):
            continue
        if type(waiting) is Notification:
            side.lane.remove(waiting)
            workers.agent_side.neighbour.notify(waiting.method, waiting.params)
        elif type(waiting) is Request and not waiting.settled:
            waiting.settled = True
            workers.queued.pop(waiting.call, None)
            side.neighbour.respond(waiting.call, *answer(PROMPT))
            prompts += 1
    return prompts > 0


def _busy_handlers(workers: Workers, session: str) -> list[Turn]:
    """Handlers of prompts of this session that do not wait for a successor's answer to one."""
    return [
        turn
        for turn in workers.handling.running.values()
        if _is(turn.item, PROMPT, session)
        and not (turn.answering is not None and turn.answering.settled)
        and not any(call.method == PROMPT for call in turn.waiting)
    ]


def _in_lane(workers: Workers, side: PluginSide) -> list[Item]:
    """What is in a side's lane: what its holder is busy with, and what waits."""
    holder = workers.holders.get(side.lane)
    busy = [] if holder is None or holder.done or holder.lane is not side.lane else [holder.item]
    waiting = side.lane.waiting()
    return [*busy, *(each for each in waiting if type(each) is not Request or not each.settled)]


def _is(item: Item, method: str, session: str) -> bool:
    if type(item) is Answer or item.method != method:
        return False
    return session_of(item.params) == session


def _ends_turn(item: Item, session: str) -> bool:
    """Whether it may be the end of a turn: the answer to a prompt, or in version 2 an update."""
    if type(item) is Answer:
        return item.call.method == PROMPT
    return _is(item, UPDATE, session) and b"state_update" in (item.params or b"")
