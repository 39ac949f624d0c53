"""End prompt turns and requests that a component does not end itself.

Three causes: a request exceeds its `request_timeout`, a prompt turn is silent for `stall_timeout`
(`stall_detector`), or a cancelled turn or request continues after `cancel_timeout`
(`cancel_timeouts`). Enforcement cancels, answers in the component's place, or kills the component's
process, which its supervisor then restarts. Where a cancelled turn hangs is decided by the chain's
`CancelArbiter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import msgspec

from conductor.acp import PROMPT, SESSION_CANCEL
from conductor.chainfile.model import ComponentSpec
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import Logger
from conductor.routing.component import Component, ComponentHost
from conductor.routing.failure_errors import FailureErrors
from conductor.routing.link import Link
from conductor.supervision.cancel_arbiter import cancelled_answer, idle_update, report_ended_turn
from conductor.supervision.cancel_monitor import CancelMonitor
from conductor.supervision.cancel_timeouts import CancelOverdue, RequestOverdue, TurnOverdue

if TYPE_CHECKING:
    from conductor.supervision.stall_detector import Overdue, StallAction
    from conductor.supervision.stall_monitor import StallMonitor

__all__ = ["TurnEnforcement"]


@attrs.define(eq=False, repr=False)
class TurnEnforcement:
    """Timeouts of the turns and requests of one component behind a link.

    `speaks_version_2` tells the protocol version of the component; `kill` kills the component's
    process; it takes the cause as the rest of a sentence about the component, for error messages:
    "was silent for 5 s". `stopped` tells whether a process of it is stopped, as a clause.
    """

    component: Component
    spec: ComponentSpec
    link: Link
    log: Logger
    speaks_version_2: Callable[[], bool]
    kill: Callable[[str], None]
    stopped: Callable[[], str | None]
    host: ComponentHost = attrs.field(init=False)
    stall_monitor: StallMonitor | None = attrs.field(default=None, init=False)
    cancel_monitor: CancelMonitor = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        spec = self.spec
        self.cancel_monitor = CancelMonitor(
            spec.cancel_timeout, self.speaks_version_2, self._on_cancel_overdue
        )
        self.link.observe_sent(self.cancel_monitor)
        if spec.request_timeout or spec.stall_timeout is not None:
            from conductor.supervision.stall_detector import StallDetector
            from conductor.supervision.stall_monitor import StallMonitor

            detector = StallDetector(
                self.cancel_monitor.turns, spec.request_timeout, spec.stall_timeout, spec.on_stall
            )
            self.stall_monitor = StallMonitor(detector, self._on_overdue)
            self.stall_monitor.observe(self.link)

    def end_turns(self, error: FailureErrors) -> None:
        """End the turns of the component with the error that says why (version 2).

        In version 1 the open prompts are answered with it; in version 2 a turn has no open request.
        """
        for session in self.cancel_monitor.turns.lost():
            self._report_idle(session, "error", error.answer(PROMPT, delivered=True))

    def end_queued_turn(self, session: str, *, version_2: bool) -> bool:
        """Answer the queued prompts of a session; called only while the component restarts."""
        queue = [] if self.link.queue is None else self.link.queue.take_prompts(session)
        for call in queue:
            answer = cancelled_answer(call.method, self.component.name, version_2=version_2)
            self.link.plain.neighbour.respond(call, *answer)
        return bool(queue)

    def _report_idle(self, session: str, reason: str, error: bytes | None = None) -> None:
        """Version 2: send the update that no turn runs in a session, in the agent's place."""
        params = idle_update(session, reason, error)
        self.cancel_monitor.on_notification(SESSION_UPDATE, params)
        self.link.plain.neighbour.notify(SESSION_UPDATE, params)

    # -- requests that take too long, silent turns -------------------------------------------------

    def _on_overdue(self, overdue: Overdue) -> None:
        """Handle an exceeded request timeout or the next escalation step of a stalled turn."""
        from conductor.supervision.stall_detector import RequestTimeout, StalledTurn

        match overdue:
            case RequestTimeout(call, seconds, session):
                reason = f"{self.component.name} did not answer {call.method} within {seconds:g} s"
                reason += " (request_timeout)"
                reason += f"; {stopped}" if (stopped := self.stopped()) else ""
                if session is not None:
                    reason += "; the turn was cancelled, and part of it may have been done"
                names = {} if session is None else {"session": session}
                self.log.warning("request timed out", method=call.method, seconds=seconds, **names)
                self.link.fail_request(call, reason, seconds)
                if session is not None:  # few agents end the turn on $/cancel_request
                    self._cancel_turn_at_component(session)
            case StalledTurn(session, calls, action, seconds):
                self.log.warning(
                    "prompt turn stalled",
                    method=PROMPT,
                    session=session,
                    seconds=round(seconds, 3),
                    action=action,
                )
                self._escalate(session, calls, action, seconds)

    def _escalate(
        self, session: str, calls: Sequence[InFlightRequest], action: StallAction, seconds: float
    ) -> None:
        match action:
            case "report":
                title = f"{self.component.name} has been silent for {seconds:.3g} s"
                self.host.send_notice(session, title, self.stopped())
            case "cancel":
                self._cancel_turn_at_component(session)
            case "cancel_request":
                for call in calls:
                    self.link.plain.cancel(call)
            case "restart":
                self.kill(f"was silent for {seconds:.3g} s (stall_timeout)")

    # -- cancelled turns and requests --------------------------------------------------------------

    def _on_cancel_overdue(self, overdue: CancelOverdue) -> None:
        """End a cancelled turn or request in the place of the component that blocks it."""
        if isinstance(overdue, TurnOverdue):
            if self.stall_monitor is not None and self.stall_monitor.detector.is_escalating(
                overdue.session
            ):
                return  # `on_stall` escalates this turn
            blocking, acts = self.host.blocking_component(self.component, ("turn", overdue.session))
            if blocking is self.component:
                self._end_cancelled_turn(overdue)
            elif blocking is not None and acts:
                self._end_turn_of_plugin(blocking, overdue)
        else:
            blocking, acts = self.host.blocking_component(
                self.component, ("request", overdue.call.method)
            )
            if blocking is self.component:
                self._end_cancelled_request(overdue)
            elif blocking is not None and acts:
                self._answer_own_requests(
                    blocking, lambda call: call.cancelled and call.method == overdue.call.method
                )

    def _end_cancelled_request(self, overdue: RequestOverdue) -> None:
        if overdue.session is not None and not self.speaks_version_2():
            # Few agents support $/cancel_request for a prompt.
            seconds = self.cancel_monitor.timeouts.timeout
            self.log.warning(
                "prompt not answered after $/cancel_request: sending session/cancel",
                method=PROMPT,
                session=overdue.session,
                seconds=seconds,
            )
            self._cancel_turn_at_component(overdue.session)
        else:
            self.log.warning(
                "request not answered after $/cancel_request: answered in its place",
                method=overdue.call.method,
            )
            self._answer_cancelled(overdue.call)

    def _end_cancelled_turn(self, overdue: TurnOverdue) -> None:
        seconds, action = self.cancel_monitor.timeouts.timeout, self.spec.on_cancel_timeout
        self.log.warning(
            "cancelled turn not ended within cancel_timeout: ended in its place",
            session=overdue.session,
            seconds=seconds,
            restart=action == "restart",
        )
        problem = report_ended_turn(
            self.host, overdue.session, self.component.name, seconds, action, self.stopped()
        )
        for call in overdue.prompts:
            self._answer_cancelled(call)
        if overdue.running:
            self._report_idle(overdue.session, "cancelled")
        if overdue.running or any(self._unanswered_prompts(overdue.session)):
            self._cancel_turn_at_successor(overdue.session)
        if action == "restart":
            self.kill(f"{problem} (cancel_timeout)")

    def _end_turn_of_plugin(self, plugin: Component, overdue: TurnOverdue) -> None:
        """End a turn that a plugin, or a component that restarts, blocks nearer to the agent.

        The plugin answers the prompts that it has; if it has none, those of this component are
        answered.
        """
        version_2 = self.speaks_version_2()
        report_ended_turn(
            self.host, overdue.session, plugin.name, self.cancel_monitor.timeouts.timeout
        )
        if not plugin.end_turn(overdue.session, version_2=version_2):
            self._answer_own_requests(plugin, lambda call: call.session == overdue.session)
        if overdue.running:
            plugin.client_port.neighbour.notify(
                SESSION_UPDATE, idle_update(overdue.session, "cancelled")
            )

    def _answer_own_requests(
        self, in_place_of: Component, chosen: Callable[[InFlightRequest], bool]
    ) -> None:
        """Answer requests of this component in the place of one nearer to the agent."""
        connection = self.link.connection
        for call in () if connection is None else filter(chosen, connection.unanswered()):
            answer = cancelled_answer(
                call.method, in_place_of.name, version_2=self.speaks_version_2()
            )
            call.source.respond(call, *answer)

    def _answer_cancelled(self, call: InFlightRequest) -> None:
        answer = cancelled_answer(
            call.method, self.component.name, version_2=self.speaks_version_2()
        )
        self.link.answer_in_place(call, *answer)

    def _unanswered_prompts(self, session: str) -> Iterator[InFlightRequest]:
        """Prompts that this proxy sent and its successor has not answered."""
        connection = self.link.connection
        for call in () if connection is None else connection.unanswered():
            if call.method == PROMPT and call.session == session:
                yield call

    def _cancel_turn_at_successor(self, session: str) -> None:
        """Send `session/cancel` to the successor of a proxy that does not forward it."""
        if self.link.enveloped is not None:
            params = msgspec.json.encode({"sessionId": session})
            self.link.enveloped.neighbour.notify(SESSION_CANCEL, params)

    def _cancel_turn_at_component(self, session: str) -> None:
        params = msgspec.json.encode({"sessionId": session})
        self.link.plain.notify("session/cancel", params)
