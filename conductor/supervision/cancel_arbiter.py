"""Which component holds up what was cancelled, and who has to end it in its place. Pure.

A cancelled turn may hang anywhere: in the agent, in a proxy that does not pass the cancellation or
the answer on, in the handler of a plugin. Its watchers are the client's link, where requests enter
the chain, and every component that is behind a link: each sees what it is sent and what it answers,
and wakes when its own time is over, those nearer to the client first. The component that holds a
turn up is the last one, toward the agent, that has been sent its cancellation and has not answered
its prompt. It is ended there, so that the proxies before it get an answer, too: by its own watcher,
or for a plugin by the last watcher before it. Those before it have time to pass the answer on:
their watchers wake at about the same moment, in any order.
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
    "find_stuck",
    "idle_update",
    "report_ended_turn",
]


class CancelArbiter:
    """Decides which watcher of one chain acts."""

    def __init__(self) -> None:
        self.timeout = CANCEL_TIMEOUT
        self._recently_ended: dict[tuple[str, str], float] = {}
        """What was ended a moment ago, and until when nobody else is said to hold it up."""

    def find(
        self,
        components: Sequence[Component],
        watcher: Component | None,
        cancelled: tuple[Literal["turn", "request"], str],
        now: float,
    ) -> tuple[Component | None, bool]:
        """See `find_stuck`; for the turn of a session, or a request by its method."""
        self._recently_ended = {
            key: until for key, until in self._recently_ended.items() if until > now
        }
        if cancelled in self._recently_ended:
            return None, False
        kind, name = cancelled

        def holds_up(each: Component) -> bool:
            return each.holds_up_turn(name) if kind == "turn" else each.holds_up_request(name)

        stuck, acts = find_stuck(components, watcher, holds_up)
        if acts:
            self._recently_ended[cancelled] = now + self.timeout / 2
        return stuck, acts


def find_stuck(
    components: Sequence[Component],
    watcher: Component | None,
    holds_up: Callable[[Component], bool],
) -> tuple[Component | None, bool]:
    """The component that holds something up, if one is known to, and whether this watcher (`None`
    is the client's link) has to end it."""
    stuck = next(filter(holds_up, reversed(components)), None)
    if stuck is None or stuck.watches_turns:
        return stuck, stuck is watcher
    before = reversed(components[: components.index(stuck)])
    last = next((each for each in before if each.watches_turns and holds_up(each)), None)
    return stuck, last is watcher


def cancelled_answer(
    method: str, name: str, *, version_2: bool
) -> tuple[Payload | None, Payload | None]:
    """The result, or the error, for a cancelled request that `name` does not answer."""
    if method == "session/prompt" and not version_2:
        return b'{"stopReason":"cancelled"}', None
    return None, cancelled_error(method, name)


def cancelled_error(method: str, name: str) -> bytes:
    """The error for a request that was withdrawn, and that `name` does not answer."""
    reason = f"{method} was cancelled, and {name} did not answer"
    return encode_error(REQUEST_CANCELLED, reason, {"component": name})


def idle_update(session: str, reason: str | None = None) -> bytes:
    """Version 2: the params of the update that says that no turn runs in a session."""
    update = {"sessionUpdate": "state_update", "state": "idle"}
    if reason is not None:
        update["stopReason"] = reason
    return msgspec.json.encode({"sessionId": session, "update": update})


def report_ended_turn(
    host: ComponentHost, session: str, name: str, seconds: float, action: OnCancelTimeout = "answer"
) -> str:
    """Tell the user about a cancelled turn that is ended in a component's place; returns what the
    component did not do."""
    problem = f"did not end the cancelled turn within {seconds:g} s"
    detail = "it is restarted" if action == "restart" else "if it does not react, restart the agent"
    detail = f"the turn was ended without it; {detail}"
    host.send_notice(session, f"{name} {problem}", detail, severity="error")
    return problem
