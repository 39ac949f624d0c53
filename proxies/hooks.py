"""`hooks`: runs a command, or calls a URL, when something happens in a session.

A command gets the event as JSON on its stdin, a URL as the body of a POST: `event`, `session_id`,
`cwd`, and members that depend on the event. As with Claude Code's hooks, exit status 0 (or an HTTP
status of 2xx) means success, 2 (or 403) blocks, with stderr (the body) as the reason, and any other
status is only logged. The effect of blocking:

    turn_end    the agent is prompted with the reason, at most `max_continues` times
    permission  the tool call is rejected without asking the user; the reason is shown
    tool_start  the turn is cancelled and the reason shown; the tool may have run already
    tool_end, error  the reason is shown

A permission hook without an answer (not started, timed out, killed by a signal, URL not reachable)
blocks too.

Options:
    hooks          each with `events`, `run` (an argv, no shell) or `url` with `headers`, `timeout`
                   (default 30s), and `kinds` of tool calls (default all; a call with a command
                   is an `execute` too, one with a diff an `edit`)
    max_continues  default 3

The hooks of an event run one after the other. A permission request, and a turn's end in protocol
version 1, wait for them; those of other events run concurrently, at most 8 hooks at once. While 200
events wait for their hooks, the agent's next updates wait.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs
import trio
from attrs.validators import ge, gt, min_len

from conductor.log import get_logger
from conductor.proxy import Forward, Proxy, RequestError, on, per_session
from proxies._command import run
from proxies._http_post import post
from proxies._messages import (
    merge_tool_call,
    opened_session,
    permission_tool_call,
    turn_end,
    update_of_kind,
)
from proxies._permission_rules import choose_option, evident_kinds
from proxies._slash_commands import is_handled, say

__all__ = ["Hook", "Hooks"]

Event: TypeAlias = Literal["turn_end", "permission", "tool_start", "tool_end", "error"]

_BLOCKS = {"run": 2, "url": 403}
_MAX_HOOKS = 8
_MAX_EVENTS = 200
"""Maximum events with hooks that run or wait to run."""

log = get_logger(component="hooks")


@attrs.frozen
class Hook:
    """One hook: a command or a URL, for some events."""

    events: list[Event] = attrs.field(validator=min_len(1))
    run: list[str] = attrs.field(factory=list)
    url: str | None = attrs.field(default=None, repr=False)
    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    timeout: timedelta = attrs.field(default=timedelta(seconds=30), validator=gt(timedelta()))
    kinds: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        if bool(self.run) == (self.url is not None):
            raise ValueError("a hook has `run` or `url`")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` begins with http:// or https://")

    async def fire(self, event: dict[str, Any]) -> str | None:
        """Run the hook; return the reason if it blocks."""
        data, seconds = json.dumps(event).encode(), self.timeout.total_seconds()
        status: int | None
        if self.url is not None:
            posted = await post(self.url, data, self.headers, seconds=seconds)
            status, reason, problem = posted.status, posted.body, posted.problem
            fine = status is not None and 200 <= status < 300
        else:
            cwd = event["cwd"] or None
            done = await run(self.run, seconds=seconds, stdin=data, cwd=cwd, limit=65536)
            reason, problem = done.stderr.decode(errors="replace"), done.problem
            status, fine = done.status, done.status == 0
        if status == _BLOCKS["run" if self.url is None else "url"]:
            return reason.strip() or "blocked by a hook"
        if not fine:
            log.warning("hook failed", hook_event=event["event"], status=status, problem=problem)
        if event["event"] == "permission" and (status is None or status < 0):
            return f"a hook gave no answer ({problem or f'ended by signal {-(status or 0)}'})"
        return None


@attrs.define
class _Session:
    cwd: str = ""
    calls: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    ended: deque[str] = attrs.field(factory=lambda: deque(maxlen=1000))
    """Ended tool calls, which may still get updates."""
    continues: int = 0
    cancelled: bool = False


@attrs.define
class Hooks(Proxy):
    """Run commands and call URLs on events."""

    hooks: list[Hook]
    max_continues: int = attrs.field(default=3, validator=ge(0))
    _version: int = attrs.field(default=1, init=False)
    _hook_slots: trio.CapacityLimiter = attrs.field(init=False)
    _event_slots: trio.Semaphore = attrs.field(init=False)

    sessions = per_session(_Session)

    def __attrs_post_init__(self) -> None:
        self._hook_slots = trio.CapacityLimiter(_MAX_HOOKS)
        self._event_slots = trio.Semaphore(_MAX_EVENTS)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        return result

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def open_session(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        cwd = params.get("cwd")
        self.sessions[opened_session(params, result)].cwd = cwd if isinstance(cwd, str) else ""
        return result

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        id = params["sessionId"]
        session = self.sessions[id]
        session.continues, session.cancelled = 0, False
        try:
            result = await forward()
            while self._version == 1 and not is_handled(result):
                self.release_lane()  # other sessions do not wait for these hooks
                reason = await self._turn_ended(id, result.get("stopReason"))
                if session.cancelled:
                    return {**result, "stopReason": "cancelled"}
                if reason is None:
                    return result
                result = await forward(_prompt(id, reason))
            return result  # version 2, or answered by a proxy: no turn of the agent
        except RequestError as exc:
            error = {"code": exc.code, "message": exc.message}
            await self._start_hooks("error", self._fire_and_show, id, "error", {"error": error})
            raise

    @on("session/cancel")
    async def cancel(self, params: dict[str, Any], forward: Forward) -> None:
        self.sessions[params["sessionId"]].cancelled = True
        await forward()

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        await forward()
        params = update_of_kind(raw, "tool_call", "tool_call_update", "state_update")
        if params is None:
            return
        id, update = params["sessionId"], params["update"]
        if update["sessionUpdate"] == "state_update":
            if turn_end(update):
                await self._start_hooks("turn_end", self._continue_turn, id, update["stopReason"])
            return
        session, call_id = self.sessions[id], str(update.get("toolCallId"))
        first = call_id not in session.calls
        if first and call_id in session.ended:
            if update["sessionUpdate"] != "tool_call":
                return
            session.ended.remove(call_id)  # an id may be used again
        call = merge_tool_call(session.calls, update)
        if first:
            await self._start_hooks("tool_start", self._fire_tool_start, id, call)
        if call_id not in session.calls:
            session.ended.append(call_id)
            await self._start_hooks(
                "tool_end", self._fire_and_show, id, "tool_end", {"tool_call": call}
            )

    @on("session/request_permission")
    async def permission(self, params: dict[str, Any], forward: Forward) -> Any:
        id, asked = params["sessionId"], permission_tool_call(params)
        asked = {name: value for name, value in asked.items() if value is not None}
        known = {**self.sessions[id].calls.get(str(asked.get("toolCallId")), {}), **asked}
        self.release_lane()
        reason = await self._fire(id, "permission", {"tool_call": known})
        if reason is None:
            return await forward()
        await say(self.client, id, f"Denied by a hook: {reason}\n", version=self._version)
        return {"outcome": choose_option("deny", params.get("options") or ())}

    # ----------------------------------------------------------------------------------------------

    async def _start_hooks(self, event: Event, function: Any, *args: Any) -> None:
        """Run `function`, which fires the hooks of an event, in a task; wait while too many events
        wait. Does nothing if no hook handles the event."""

        async def run_and_release() -> None:
            try:
                await function(*args)
            finally:
                self._event_slots.release()

        if any(event in hook.events for hook in self.hooks):
            await self._event_slots.acquire()
            self.start_soon(run_and_release)

    async def _turn_ended(self, id: str, stop_reason: Any) -> str | None:
        """Fire the hooks of `turn_end`; return the prompt with which the agent continues."""
        session = self.sessions[id]
        reason = await self._fire(id, "turn_end", {"stop_reason": stop_reason})
        if reason is None or stop_reason == "cancelled" or session.cancelled:
            return None
        if session.continues >= self.max_continues:
            log.warning("turn_end hook ignored: max_continues reached", session=id)
            return None
        session.continues += 1
        return reason

    async def _continue_turn(self, id: str, stop_reason: str) -> None:
        """Fire the hooks of a turn's end in version 2; a prompt starts the next turn."""
        reason = await self._turn_ended(id, stop_reason)
        if reason is not None:
            # In a task: the response may come after updates that wait for this function.
            self.start_soon(self.agent.request, "session/prompt", _prompt(id, reason))

    async def _fire_tool_start(self, id: str, call: dict[str, Any]) -> None:
        if await self._fire_and_show(id, "tool_start", {"tool_call": call}):
            await self.agent.cancel(id)

    async def _fire_and_show(self, id: str, event: Event, about: dict[str, Any]) -> bool:
        async with self._hook_slots:
            reason = await self._fire(id, event, about)
        if reason is not None:
            await say(self.client, id, f"A hook says: {reason}\n", version=self._version)
        return reason is not None

    async def _fire(self, id: str, event: Event, about: dict[str, Any]) -> str | None:
        """Fire the hooks of an event, until one blocks; return its reason."""
        kinds = evident_kinds(about.get("tool_call", {}))
        payload = {"event": event, "session_id": id, "cwd": self.sessions[id].cwd, **about}
        for hook in self.hooks:
            fits = not hook.kinds or "tool_call" not in about or not kinds.isdisjoint(hook.kinds)
            if event in hook.events and fits:
                reason = await hook.fire(payload)
                if reason is not None:
                    return reason
        return None


def _prompt(session_id: str, text: str) -> dict[str, Any]:
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
