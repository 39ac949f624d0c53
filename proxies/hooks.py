"""`hooks`: runs a command, or calls a URL, when something happens in a session.

A command gets the event as JSON on its stdin, a URL as the body of a POST: `event`, `session_id`,
`cwd`, and members that depend on the event. As with Claude Code's hooks, exit status 0 (or an HTTP
status of 2xx) means success, 2 (or 403) blocks, with stderr (the body) as the reason, and any other
status is only logged. The effect of blocking:

    turn_end    the agent is prompted with the reason, at most `max_continues` times
    permission  the tool call is rejected without asking the user; the reason is shown
    elicitation the question is declined without asking the user; the reason is shown
    tool_start  the turn is cancelled and the reason shown. The event comes once, when the input of
                the call is known; the tool may have run already
    tool_end, error  the reason is shown

The `error` of a failed turn has `code`, `message` and, if known, `reason` (`rate limit`,
`overload`, `login required`) and `ends_at`, when a limit ends, in seconds since 1970. A turn that
ends as usual and reports a failure, as claude's and codex's in a JetBrains client, is an `error`,
no `turn_end`.

A hook of `permission` or `elicitation` without an answer (not started, timed out, killed by a
signal, URL not reachable) blocks too.

Options:
    hooks          each with `events`, `run` (an argv, no shell) or `url` with `headers`, `timeout`
                   (default 30s), and `kinds` of tool calls (default all; a call with a command
                   is an `execute` too, one with a diff an `edit`)
    max_continues  default 3

The hooks of an event run one after the other. A permission request, an elicitation, and a turn's
end in protocol version 1, wait for them; those of other events run concurrently, at most 8 hooks at
once, but those of a tool's end after those of its start. While 200 events wait for their hooks, the
agent's next updates wait.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import attrs
import trio
from attrs.validators import ge, gt, min_len

from conductor.proxy import (
    AgentToolCall,
    Forward,
    PermissionQuestion,
    Placement,
    Prompt,
    Proxy,
    Question,
    RequestError,
    Session,
    TurnEnd,
    get_logger,
    on_permission,
    on_prompt,
    on_question,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    per_session,
)
from conductor.proxy.commands import program_warning, run_command
from conductor.proxy.import_guard import import_in_thread
from proxies.shared.agent_failures import failure_reason, limit_end, reported_failure
from proxies.shared.tool_calls.call import evident_kinds

__all__ = ["Hook", "Hooks"]

Event: TypeAlias = Literal[
    "turn_end", "permission", "elicitation", "tool_start", "tool_end", "error"
]

_QUESTIONS = frozenset({"permission", "elicitation"})
"""Events that block if a hook gives no answer."""
_ROUTING = frozenset({"sessionId", "_meta"})
"""Params of an elicitation that a hook does not get."""
_MAX_REASON = 65536
"""Bytes of an output, characters of a body."""
_MAX_HOOKS = 8
_MAX_EVENTS = 200
"""Maximum events with hooks that run or wait to run."""

log = get_logger(component="hooks")


@attrs.frozen
class _Outcome:
    """What a hook has answered."""

    status: int | None = None
    """An exit status, negative for a signal, or a status of HTTP."""
    reason: str = ""
    problem: str | None = None
    """Why there is no status. Without the URL, which may hold a token."""


@attrs.frozen
class Hook:
    """One hook: a command or a URL, for some events."""

    events: list[Event] = attrs.field(validator=min_len(1))
    """When it runs."""
    run: list[str] = attrs.field(factory=list)
    """A program and its arguments, without a shell."""
    url: str | None = attrs.field(default=None, repr=False)
    """In place of `run`: a URL, which gets a POST."""
    headers: dict[str, str] = attrs.field(factory=dict, repr=False)
    """HTTP headers for `url`."""
    timeout: timedelta = attrs.field(default=timedelta(seconds=30), validator=gt(timedelta()))
    """Time after which it is ended."""
    kinds: list[str] = attrs.field(factory=list)
    """Kinds of tool calls, such as `execute` or `edit`; without it, all."""

    def __attrs_post_init__(self) -> None:
        if bool(self.run) == (self.url is not None):
            raise ValueError("a hook has `run` or `url`")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` begins with http:// or https://")

    async def fire(self, event: dict[str, Any]) -> str | None:
        """Run the hook; return the reason if it blocks."""
        data = json.dumps(event).encode()
        found = await (self._run(data, event["cwd"]) if self.url is None else self._post(data))
        status, problem = found.status, found.problem
        if status == (2 if self.url is None else 403):
            return found.reason.strip() or "blocked by a hook"
        if not (status == 0 if self.url is None else 200 <= (status or 0) < 300):
            log.warning("hook failed", hook_event=event["event"], status=status, problem=problem)
        if event["event"] in _QUESTIONS and (status is None or status < 0):
            return f"a hook gave no answer ({problem or f'ended by signal {-(status or 0)}'})"
        return None

    async def _run(self, data: bytes, cwd: str) -> _Outcome:
        seconds = self.timeout.total_seconds()
        done = await run_command(
            self.run, seconds=seconds, stdin=data, cwd=cwd or None, limit=_MAX_REASON
        )
        return _Outcome(done.status, done.stderr.decode(errors="replace"), done.problem)

    async def _post(self, data: bytes) -> _Outcome:
        """Redirects are not followed: the headers may hold secrets for this host."""
        assert self.url is not None
        await import_in_thread("httpx2")
        import httpx2

        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **self.headers,
        }
        seconds, body = self.timeout.total_seconds(), bytearray()
        try:
            with trio.fail_after(seconds):
                async with (
                    httpx2.AsyncClient(timeout=None) as client,
                    client.stream("POST", self.url, content=data, headers=headers) as answer,
                    aclosing(answer.aiter_raw()) as chunks,
                ):
                    async for chunk in chunks:
                        body += chunk
                        if len(body) >= _MAX_REASON:  # also of a server that sends without end
                            break
        except trio.TooSlowError:
            return _Outcome(problem=f"no answer within {seconds:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as exc:
            return _Outcome(problem=_problem(exc))
        return _Outcome(answer.status_code, body[:_MAX_REASON].decode(errors="replace"))


@attrs.define
class Hooks(Proxy):
    """Run commands and call URLs on events."""

    hooks: list[Hook]
    max_continues: int = attrs.field(default=3, validator=ge(0))
    _hook_slots: trio.CapacityLimiter = attrs.field(init=False)
    _event_slots: trio.Semaphore = attrs.field(init=False)

    continues = per_session(int)
    """Number of times that hooks have continued the turn of the last prompt."""
    starting = per_session(dict[str, trio.Event])
    """By tool call: set when its hooks of `tool_start` have run; those of `tool_end` wait."""

    def __attrs_post_init__(self) -> None:
        self._hook_slots = trio.CapacityLimiter(_MAX_HOOKS)
        self._event_slots = trio.Semaphore(_MAX_EVENTS)

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        return [("hooks", why) for hook in self.hooks if (why := program_warning(hook.run))]

    def placement(self) -> Placement:
        continues = any("turn_end" in hook.events for hook in self.hooks)
        return Placement(
            effects={"adds_text"} if continues else set(),
            before={"opens_agents": "no hook runs for the agents that it opens"},
        )

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        self.continues[session.id] = 0
        try:
            result = await forward()
            while session.protocol_version == 1 and not prompt.answered_by_proxy:
                self.release_lane()  # other sessions do not wait for these hooks
                if (failure := reported_failure(result)) is not None:
                    await self._failed(session, failure)
                    return result
                reason = await self._turn_ended(session, result.get("stopReason"))
                if session.cancelled:
                    return {**result, "stopReason": "cancelled"}
                if reason is None:
                    return result
                prompt.blocks = [{"type": "text", "text": reason}]
                result = await forward()
            return result
        except RequestError as exc:
            await self._failed(session, exc)
            raise

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        """In version 2, in which a turn ends after its prompt was answered."""
        if session.protocol_version > 1 and session.parent is None:
            failure = end.error or reported_failure({"_meta": end.meta})
            if failure is not None:
                await self._failed(session, failure)
                return
            await self._start("turn_end", self._continue_turn, session, end.stop_reason)

    @on_tool_start
    async def tool_started(self, session: Session, call: AgentToolCall) -> None:
        if any("tool_start" in hook.events for hook in self.hooks):
            self.starting[session.id].setdefault(call.id, trio.Event())
        await self._start_hooks(session, "tool_start", tool_call=dict(call.members))

    @on_tool_end
    async def tool_ended(self, session: Session, call: AgentToolCall) -> None:
        await self._start_hooks(session, "tool_end", tool_call=dict(call.members))

    @on_permission
    async def permission(
        self, session: Session, asked: PermissionQuestion, forward: Forward
    ) -> Any:
        self.release_lane()
        call = asked.tool_call.members if asked.tool_call is not None else {}
        reason = await self._fire(session, "permission", tool_call=call)
        if reason is None:
            return await forward()
        await session.notice("Denied by a hook", reason, severity="warning")
        return asked.deny()

    @on_question
    async def elicitation(
        self, session: Session | None, question: Question, forward: Forward
    ) -> Any:
        """Fire the hooks of a question, which may belong to a request outside a session."""
        self.release_lane()
        about = {name: each for name, each in question.params.items() if name not in _ROUTING}
        reason = await self._fire(session or Session(), "elicitation", elicitation=about)
        if reason is None:
            return await forward()
        if session is not None:
            await session.notice("Declined by a hook", reason, severity="warning")
        return question.decline()

    # ----------------------------------------------------------------------------------------------

    async def _failed(self, session: Session, failure: RequestError) -> None:
        error: dict[str, Any] = {"code": failure.code, "message": failure.message}
        if (reason := failure_reason(failure)) is not None:
            error["reason"] = reason
        if (end := limit_end(failure, time.time())) is not None:
            error["ends_at"] = round(end)
        await self._start_hooks(session, "error", error=error)

    async def _start_hooks(self, session: Session, event: Event, **about: Any) -> None:
        await self._start(event, self._fire_and_show, session, event, about)

    async def _start(self, event: Event, function: Any, *args: Any) -> None:
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

    async def _turn_ended(self, session: Session, stop_reason: str | None) -> str | None:
        """Fire the hooks of `turn_end`; return the prompt with which the agent continues."""
        reason = await self._fire(session, "turn_end", stop_reason=stop_reason)
        if reason is None or stop_reason == "cancelled" or session.cancelled:
            return None
        if self.continues[session.id] >= self.max_continues:
            log.warning("turn_end hook ignored: max_continues reached", session=session.id)
            return None
        self.continues[session.id] += 1
        return reason

    async def _continue_turn(self, session: Session, stop_reason: str | None) -> None:
        """Fire the hooks of a turn's end in version 2; a prompt starts the next turn."""
        reason = await self._turn_ended(session, stop_reason)
        if reason is not None:
            params = {"sessionId": session.id, "prompt": [{"type": "text", "text": reason}]}
            # In a task: the response may come after updates that wait for this function.
            self.start_soon(self.agent.request, "session/prompt", params)

    async def _fire_and_show(self, session: Session, event: Event, about: dict[str, Any]) -> None:
        starting, call = self.starting[session.id], about.get("tool_call", {}).get("toolCallId")
        if event == "tool_end" and call in starting:
            await starting[call].wait()
        try:
            async with self._hook_slots:
                reason = await self._fire(session, event, **about)
        finally:
            if event == "tool_start" and call in starting:
                starting.pop(call).set()
        if reason is None:
            return
        await session.notice("A hook says", reason)
        if event == "tool_start":
            for id in dict.fromkeys((session.id, session.user_session.id)):
                await self.agent.cancel(id)

    async def _fire(self, session: Session, event: Event, **about: Any) -> str | None:
        """Fire the hooks of an event, until one blocks; return its reason."""
        kinds = evident_kinds(about.get("tool_call", {}))
        payload = {"event": event, "session_id": session.id, "cwd": session.cwd, **about}
        if session.parent is not None:
            payload["user_session_id"] = session.user_session.id
        for hook in self.hooks:
            fits = not hook.kinds or "tool_call" not in about or not kinds.isdisjoint(hook.kinds)
            if event in hook.events and fits:
                reason = await hook.fire(payload)
                if reason is not None:
                    return reason
        return None


def _problem(error: BaseException) -> str:
    """The reason of the operating system, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror is not None:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
