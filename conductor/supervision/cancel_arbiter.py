"""Decide which component blocks a cancelled turn or request, and which watcher ends it.

A cancelled turn may hang in the agent, in a proxy that does not forward the cancellation or the
response, or in a plugin's handler. Watchers are the client's link, where requests enter the chain,
and every component behind a link: each sees the requests to and responses from its component, and
wakes `cancel_timeout` seconds after the cancellation. All watchers of one turn wake at about the
same time, in any order, and each asks the arbiter whether it has to act.

The blocking component is the one nearest to the agent that was sent the cancellation and has not
answered its prompt, or that restarts with the prompt in its queue. Exactly one watcher ends the
turn there, so that the proxies before it get a response as well: the component's own watcher, or,
for a plugin or a component that restarts, the last one before it that waits, too, or else the
client's link. For half of `cancel_timeout` afterwards no other watcher acts on
this turn, or on requests of this method: the proxies need time to forward the response.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from conductor.chainfile.model import CANCEL_TIMEOUT, OnCancelTimeout
from conductor.jsonrpc.messages import REQUEST_CANCELLED, Payload, encode_error
from conductor.routing.component import Component, ComponentHost

__all__ = [
    "CancelArbiter",
    "cancelled_answer",
    "cancelled_error",
    "find_blocking_component",
    "idle_update",
    "report_ended_turn",
]


class CancelArbiter:
    """Arbiter of one chain; remembers which turns and requests were ended just now."""

    def __init__(self) -> None:
        self.timeout = CANCEL_TIMEOUT
        self._recently_ended: dict[tuple[str, str], tuple[float, Component | None]] = {}
        """Turns and requests just ended: the time until which no other watcher acts, and the one
        that has acted."""

    def find(
        self,
        components: Sequence[Component],
        watcher: Component | None,
        cancelled: tuple[Literal["turn", "request"], str],
        now: float,
    ) -> tuple[Component | None, bool]:
        """See `find_blocking_component`; for the turn of a session, or a request by its method."""
        self._recently_ended = {
            key: ended for key, ended in self._recently_ended.items() if ended[0] > now
        }
        if self._recently_ended.get(cancelled, (now, watcher))[1] is not watcher:
            return None, False
        kind, name = cancelled

        def blocks(each: Component) -> bool:
            return each.blocks_turn(name) if kind == "turn" else each.blocks_request(name)

        blocking, acts = find_blocking_component(components, watcher, blocks)
        if acts:
            self._recently_ended[cancelled] = (now + self.timeout / 2, watcher)
        return blocking, acts

    def suspect(self, components: Sequence[Component]) -> Component | None:
        """Best guess if no component has an open request of this method: the last with any
        cancelled request, as a proxy may have sent another one for it (`v1_v2` for `session/load`);
        without one, the watcher that has last ended a request. Call after `find`."""
        blocking = next((each for each in reversed(components) if each.blocks_request(None)), None)
        if blocking is not None:
            return blocking
        ended = [
            watcher for (kind, _), (_, watcher) in self._recently_ended.items() if kind == "request"
        ]
        return next(filter(None, reversed(ended)), None)


def find_blocking_component(
    components: Sequence[Component],
    watcher: Component | None,
    blocks: Callable[[Component], bool],
) -> tuple[Component | None, bool]:
    """The blocking component, if one is known, and whether this watcher has to end the turn.

    `watcher` is None for the client's link, which ends the turn if no component is known to block
    it.
    """
    blocking = next(filter(blocks, reversed(components)), None)
    if blocking is None or blocking.enforces_cancel_timeout:
        return blocking, blocking is watcher
    before = reversed(components[: components.index(blocking)])
    last = next((each for each in before if each.enforces_cancel_timeout and blocks(each)), None)
    return blocking, last is watcher


def cancelled_answer(
    method: str, name: str, *, version_2: bool
) -> tuple[Payload | None, Payload | None]:
    """The raw result and raw error for a cancelled request that `name` does not answer."""
    if method == "session/prompt" and not version_2:
        return b'{"stopReason":"cancelled"}', None
    return None, cancelled_error(method, name)


def cancelled_error(method: str, name: str) -> bytes:
    """The raw error (-32800) for a cancelled request that `name` does not answer."""
    reason = f"{method} was cancelled, and {name} did not answer"
    return encode_error(REQUEST_CANCELLED, reason, {"component": name})


def idle_update(session: str, reason: str, error: bytes | None = None) -> bytes:
    """Version 2: raw params of the `session/update` that reports a session as idle.

    `error` is the raw error object that belongs to the stop reason `error`.
    """
    update: dict[str, object] = {"sessionUpdate": "state_update", "state": "idle"}
    update["stopReason"] = reason
    if error is not None:
        update["error"] = msgspec.Raw(error)
    return msgspec.json.encode({"sessionId": session, "update": update})


def report_ended_turn(
    host: ComponentHost,
    session: str,
    name: str,
    seconds: float,
    action: OnCancelTimeout = "answer",
    stopped: str | None = None,
) -> str:
    """Notify the user of a cancelled turn that is ended in a component's place.

    Returns the problem as a predicate for error messages. `seconds` is the timeout, `stopped` says
    that a process of the component is stopped.
    """
    problem = f"did not end the cancelled turn within {seconds:g} s"
    problem += f"; {stopped}" if stopped else ""
    detail = "it is restarted" if action == "restart" else "if it does not react, restart the agent"
    detail = f"the turn was ended without it; {detail}"
    host.send_notice(session, f"{name} {problem}", detail, severity="error")
    return problem
