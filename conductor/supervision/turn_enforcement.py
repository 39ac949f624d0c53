"""End prompt turns and requests that a component does not end itself.

Three causes: a request exceeds its `request_timeout`, a prompt turn is silent for `stall_timeout`
(both `monitors`), or a cancelled turn continues after `cancel_timeout`, and the chain's
`cancel_watch` has found that this component blocks it. Enforcement cancels, answers in the
component's place, or kills the component's process, which its supervisor then restarts.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import msgspec
import trio

from conductor.acp import PROMPT, SESSION_CANCEL
from conductor.chainfile.model import ComponentSpec, OnCancelTimeout
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import RawMember
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import Logger
from conductor.routing.component import Blocker, Component, ComponentHost
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.supervision.cancel_watch import cancelled_answer, idle_update
from conductor.supervision.monitors import StalledTurn, StallMonitor
from conductor.supervision.turn_observer import TurnObserver

__all__ = ["TurnEnforcement"]


@attrs.define(eq=False, repr=False)
class TurnEnforcement(Blocker):
    """Timeouts of the turns and requests of one component behind a link.

    `speaks_version_2` tells the protocol version of the component; `kill` kills the component's
    process; it takes the cause as the rest of a sentence about the component, for error messages:
    "was silent for 5 s". `why_stopped` tells whether a process of it is stopped, as a clause.
    """

    component: Component
    spec: ComponentSpec
    link: Link
    log: Logger
    speaks_version_2: Callable[[], bool]
    kill: Callable[[str], None]
    why_stopped: Callable[[], str | None]
    host: ComponentHost = attrs.field(init=False)
    stall_monitor: StallMonitor | None = attrs.field(default=None, init=False)
    hop: TurnObserver = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        spec = self.spec
        self.hop = TurnObserver(self.link, self.speaks_version_2)
        if spec.request_timeout or spec.stall_timeout is not None:
            self.stall_monitor = StallMonitor(
                self.hop.turns,
                spec.stall_timeout,
                spec.on_stall,
                spec.request_timeout,
                self._time_out,
                self._escalate,
            )
            self.stall_monitor.insert(self.link)

    def end_turns(self, error: FailureErrors) -> None:
        """End the turns of the component with the error that says why (version 2).

        In version 1 the open prompts are answered with it; in version 2 a turn has no open request.
        """
        for session in self.hop.turns.lost():
            params = idle_update(session, "error", error.answer(PROMPT, delivered=True))
            self.link.plain.neighbour.notify(SESSION_UPDATE, params)

    # -- requests that take too long, silent turns -------------------------------------------------

    def _time_out(self, call: InFlightRequest) -> None:
        """Answer a request that has exceeded its request timeout."""
        seconds, session = self.spec.request_timeout[call.method], call.session
        reason = f"{self.component.name} did not answer {call.method} within {seconds:g} s"
        reason += " (request_timeout)"
        reason += f"; {stopped}" if (stopped := self.why_stopped()) else ""
        if session is not None:
            reason += "; the turn was cancelled, and part of it may have been done"
        names = {} if session is None else {"session": session}
        self.log.warning("request timed out", method=call.method, seconds=seconds, **names)
        self.link.fail_request(call, reason)
        if session is not None:  # few agents end the turn on $/cancel_request
            self._cancel_turn_at_component(session)

    def _escalate(self, stalled: StalledTurn) -> None:
        """Take the next escalation step of a stalled turn."""
        session, seconds = stalled.session, stalled.seconds
        self.log.warning(
            "prompt turn stalled",
            method=PROMPT,
            session=session,
            seconds=round(seconds, 3),
            action=stalled.action,
        )
        match stalled.action:
            case "report":
                title = f"{self.component.name} has been silent for {seconds:.3g} s"
                self.host.send_notice(session, title, self.why_stopped())
            case "cancel":
                self._cancel_turn_at_component(session)
            case "cancel_request":
                for call in stalled.calls:
                    self.link.plain.cancel(call)
            case "restart":
                self.kill(f"was silent for {seconds:.3g} s (stall_timeout)")

    # -- cancelled turns (`cancel_watch`) ----------------------------------------------------------

    @property
    def on_cancel_timeout(self) -> OnCancelTimeout:
        return "answer" if self.link.queue is not None else self.spec.on_cancel_timeout

    def cancelled_since(self, session: str) -> float | None:
        queue = self.link.queue
        if queue is not None:
            return float("-inf") if queue.has_prompt(session) else None
        since = self.hop.turns.cancelled_since(session)
        if since is None or self.stall_monitor is None:
            return since
        is_escalating = self.stall_monitor.is_escalating(session)
        return float("inf") if is_escalating else since  # `on_stall` ends it

    def end_turn(self, session: str, until: float, problem: str, *, version_2: bool) -> bool:
        answer = cancelled_answer(PROMPT, self.component.name, version_2=version_2)
        queue = self.link.queue
        if queue is not None:
            queued = queue.take_prompts(session)
            for call in queued:
                self.link.plain.neighbour.respond(call, *answer)
            return bool(queued)
        turns = self.hop.turns.of(session)
        prompts, is_running = turns.cancelled_until(until)
        for call in prompts:
            self.link.answer_in_place(call, *answer)
        if is_running:
            turns.state("idle", trio.current_time(), stop_reason="cancelled")
        kept = len(self.link.unanswered_prompts(session)) > len(list(turns.unanswered()))
        if self.link.enveloped is not None and (is_running or kept):
            # it may not have passed the cancellation on
            params = msgspec.json.encode({"sessionId": session})
            self.link.enveloped.neighbour.notify(SESSION_CANCEL, params)
        if self.spec.on_cancel_timeout == "restart":
            self.kill(problem)
        return True

    def requests(self) -> list[InFlightRequest]:
        connection = self.link.connection
        return [] if connection is None else [c for c in connection.sent.values() if c.cancelled]

    def end_request(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        self.link.answer_in_place(call, result, error)

    def _cancel_turn_at_component(self, session: str) -> None:
        params = msgspec.json.encode({"sessionId": session})
        self.link.plain.notify("session/cancel", params)
