"""End cancelled turns and requests that continue, in the place of the component that blocks them.

In: what is cancelled on any link of a chain (`turn_observer`), by the client or by a proxy.
`timeout` seconds later, what continues is ended at one place, the one nearest to the agent in this
table. Those before it then have time to pass the end on.

A cancelled turn is blocked by, and is ended there so:

- a component behind a link that has not ended it: its prompts are answered in its place, in version
  2 the session is reported as idle, and `on_cancel_timeout` may restart it
- a component that restarts, by prompts in its queue: they are answered
- a plugin, by a handler or in a lane (`BlockedTurns`): its prompts are answered, and their
  handlers are cancelled; if it has none, those of the last one before it that waits are answered
- no known component: the client's prompts are answered

A cancelled request is answered -32800 in the place of:

- the component behind a link that it was sent to, or the plugin that has it and waits for no other
  request; a prompt of version 1 is cancelled with `session/cancel` first: few agents know
  `$/cancel_request` for it
- no known component: in the place of the whole chain
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec
import trio

from conductor.acp import PROMPT, SESSION_CANCEL
from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import REQUEST_CANCELLED, Payload, encode_error
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import get_logger
from conductor.routing.component import (
    Blocker,
    Cancelled,
    CancelReports,
    Component,
    ComponentHost,
    Hop,
)
from conductor.supervision.deadlines import Deadlines

__all__ = ["CancelWatch", "cancelled_answer", "idle_update"]

Answer: TypeAlias = tuple[Payload | None, Payload | None]
"""A raw result or a raw error."""

_THE_CHAIN: Final = "the chain"
"""The name of what blocks, if no component is known to."""


class CancelWatch(CancelReports):
    """Watch of one chain. `components` is the chain's list, which changes; `client` is the client
    with its turns."""

    def __init__(self, host: ComponentHost, client: Hop, components: list[Component]) -> None:
        self.timeout: float = CANCEL_TIMEOUT
        """In seconds; that of the agent."""
        self.ends: Callable[[Cancelled], bool] = lambda what: True
        """Whether this watch ends it: not what another chain of the client has."""
        self._host = host
        self._client = client
        self._components = components
        self._due: Deadlines[Cancelled] = Deadlines(self._on_overdue)
        self._patient_until = float("-inf")
        """Until then a request may wait for a component that passes on the answer to another."""

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        await self._due.run()

    def cancelled(self, what: Cancelled) -> None:
        if what not in self._due:
            self._due[what] = trio.current_time() + self.timeout

    def answered(self, call: InFlightRequest) -> None:
        self._due.pop(call, None)

    def _on_overdue(self, what: Cancelled) -> None:
        now = trio.current_time()
        self._due[what] = now + self.timeout  # again, until it ends
        if isinstance(what, str):
            self._check_turn(what, now)
        else:
            self._check_request(what, now)

    # -- turns -------------------------------------------------------------------------------------

    def _check_turn(self, session: str, now: float) -> None:
        first = next(self._blocking(session), None)
        if first is None:
            del self._due[session]
            return
        if not self.ends(session):
            return
        component, hop, since = first
        if since + self.timeout <= now:
            self._end_turn(session, component, hop, now - self.timeout)
        times = [since + self.timeout for _, _, since in self._blocking(session)]
        self._due[session] = min([self._due[session], *(each for each in times if each > now)])

    def _blockers(self) -> list[tuple[Component, Blocker, list[Hop]]]:
        """The components that may block, and the hops before each; those nearest to the agent
        first."""
        found: list[tuple[Component, Blocker, list[Hop]]] = []
        hops = [self._client]
        for component in self._components:
            if (blocker := component.blocker) is not None:
                found.insert(0, (component, blocker, hops))
                hops = hops if blocker.hop is None else [blocker.hop, *hops]
        return found

    def _blocking(self, session: str) -> Iterator[tuple[Component | None, Hop, float]]:
        """What a cancelled turn waits for: the component, that nearest to the agent first, `None`
        for the whole chain; the hop whose prompts it blocks; when it was cancelled there."""
        for component, blocker, hops in self._blockers():
            since, hop = blocker.cancelled_since(session), blocker.hop
            if since == float("-inf"):
                hop = next((each for each in hops if each.turns.is_cancelled(session)), hops[-1])
                since = hop.turns.cancelled_since(session)
            if since is not None and hop is not None:
                yield component, hop, since
        if (since := self._client.turns.cancelled_since(session)) is not None:
            yield None, self._client, since

    def _end_turn(self, session: str, component: Component | None, hop: Hop, until: float) -> None:
        """End what was cancelled until then. First the notice, which the user reads in the turn."""
        name = _THE_CHAIN if component is None else component.name
        blocker = None if component is None else component.blocker
        stopped = None if blocker is None else blocker.why_stopped()
        restarts = blocker is not None and blocker.on_cancel_timeout == "restart"
        get_logger(component=name).warning(
            "cancelled turn not ended within cancel_timeout: ended in its place",
            session=session,
            seconds=self.timeout,
            restart=restarts,
        )
        problem = f"did not end the cancelled turn within {self.timeout:g} s"
        problem += f"; {stopped}" if stopped else ""
        detail = "it is restarted" if restarts else "if it does not react, restart the agent"
        detail = f"the turn was ended without it; {detail}"
        self._host.send_notice(session, f"{name} {problem}", detail, severity="error")
        prompts, is_running = hop.turns.of(session).cancelled_until(until)
        version_2 = hop.turns.version == 2
        if blocker is None or not blocker.end_turn(
            session, until, f"{problem} (cancel_timeout)", version_2=version_2
        ):
            if hop is not self._client:
                prompts = hop.link.unanswered_prompts(session)[: len(prompts)]
            for call in prompts:
                answer = cancelled_answer(call.method, name, version_2=version_2)
                (hop.link.enveloped or hop.link.plain).respond(call, *answer)
        if is_running:
            toward_client = (
                self._client.link.plain if component is None else component.client_port.neighbour
            )
            toward_client.notify(SESSION_UPDATE, idle_update(session, "cancelled"))

    # -- requests ----------------------------------------------------------------------------------

    def _check_request(self, call: InFlightRequest, now: float) -> None:
        if not self.ends(call):
            return
        if now < self._patient_until:
            self._due[call] = self._patient_until
            return
        for component, blocker, hops in self._blockers():
            held = blocker.requests()
            overdue = [each for each in held if each is call or self._due.get(each, now) <= now]
            if overdue:
                self._patient_until = now + self.timeout / 2
                version_2 = (blocker.hop or hops[0]).turns.version == 2
                for each in overdue:
                    self._end_request(component.name, blocker, each, now, version_2=version_2)
                return
            if later := [self._due[each] for each in held if each.method == call.method]:
                self._due[call] = min(later)
                return
        del self._due[call]
        if call.source is self._client.link.connection:
            version_2 = self._client.turns.version == 2
            self._client.link.plain.respond(call, *_answer(call, _THE_CHAIN, version_2=version_2))

    def _end_request(
        self, name: str, blocker: Blocker, call: InFlightRequest, now: float, *, version_2: bool
    ) -> None:
        session = call.session
        if version_2 or session is None or blocker.hop is None:
            blocker.end_request(call, *_answer(call, name, version_2=version_2))
            return
        get_logger(component=name).warning(
            "prompt not answered after $/cancel_request: sending session/cancel",
            method=PROMPT,
            session=session,
            seconds=self.timeout,
        )
        for each in self._due:
            if isinstance(each, InFlightRequest) and each.session == session:
                self._due[each] = now + 2 * self.timeout  # after the turn
        params = msgspec.json.encode({"sessionId": session})
        blocker.hop.link.plain.notify(SESSION_CANCEL, params)


def _answer(call: InFlightRequest, name: str, *, version_2: bool) -> Answer:
    """The answer to a cancelled request in the place of `name`, which is logged."""
    get_logger(component=name).warning(
        "request not answered after $/cancel_request: answered in its place", method=call.method
    )
    return cancelled_answer(call.method, name, version_2=version_2)


def cancelled_answer(method: str, name: str, *, version_2: bool) -> Answer:
    """The raw result and raw error for a cancelled request that `name` does not answer."""
    if method == PROMPT and not version_2:
        return b'{"stopReason":"cancelled"}', None
    reason = f"{method} was cancelled, and {name} did not answer"
    return None, encode_error(REQUEST_CANCELLED, reason, {"component": name})


def idle_update(session: str, reason: str, error: bytes | None = None) -> bytes:
    """Version 2: raw params of the `session/update` that reports a session as idle.

    `error` is the raw error object that belongs to the stop reason `error`.
    """
    update: dict[str, object] = {"sessionUpdate": "state_update", "state": "idle"}
    update["stopReason"] = reason
    if error is not None:
        update["error"] = msgspec.Raw(error)
    return msgspec.json.encode({"sessionId": session, "update": update})
