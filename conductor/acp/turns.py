"""Whether a turn runs: the one owner of this fact, for the sessions of one hop. Pure.

In: what passes the hop, as small decoded facts with the caller's time. Out: whether a turn runs,
since when, whose it is, when it was cancelled, how it ended, and what a lost connection ends.

Version 1: a turn is a `session/prompt` from its sending to its response, and nothing else.

Version 2: an agent answers a prompt when it has inserted it, and reports by `state_update` when its
work begins and ends; in any order, and work may begin without a prompt (schema: `StateUpdate`). A
prompt is sent → inserted (answered) → working → finished. The specification is silent about these:

- Work that began after a prompt was sent is its work, even if it ends before the answer. Without
  such work the agent holds the prompt: the end of earlier work is not its end.
- An agent that has reported `idle` only, on this connection, ends inserted prompts by an `idle`
  with a stop reason; so does any agent after a `session/cancel`.
- A result with a stop reason ends its prompt, as in version 1, unless its work has ended before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from conductor.acp import MAX_AGENTS_ID

__all__ = ["Ended", "Progress", "SentPrompt", "SessionTurns", "Turns", "Work"]

K = TypeVar("K", bound=Hashable)

Work: TypeAlias = Literal["idle", "running", "blocked", "unverified"]
"""The agent's foreground work; blocked and unverified are `requires_action` and `unknown`."""
Progress: TypeAlias = Literal["sent", "inserted", "working"]

_WORK_BY_STATE: Final[Mapping[object, Work]] = {
    "idle": "idle",
    "running": "running",
    "requires_action": "blocked",
    "unknown": "unverified",
}
_MAX_SESSIONS: Final = 1000
"""With so many sessions, those without a turn are forgotten; if none is, those that only the agent
names are not remembered."""


class Ended(msgspec.Struct, Generic[K], frozen=True):
    """The end of a turn."""

    stop_reason: str | None
    """The reported one; `None` if there is none."""
    prompts: tuple[K, ...] = ()
    """The prompts that it has finished."""
    is_cancelled: bool = False
    """Whether it was cancelled before, whatever stop reason is reported."""
    report: Any = None
    """The message that has told of it, as the caller has passed it."""


class SentPrompt(msgspec.Struct, Generic[K], eq=False):
    """A prompt that is not finished."""

    key: K
    sent_at: float
    progress: Progress = "sent"
    cancelled_at: float | None = None
    has_worked: bool = False
    """Whether work has begun since it was sent."""
    ended: Ended[K] | None = None
    """The end of that work, for a prompt without an answer."""


class SessionTurns(msgspec.Struct, Generic[K], eq=False):
    """The turns of one session. Keys identify prompts; times are of any one clock, in seconds."""

    hop: Turns[K]
    work: Work = "idle"
    last_known: Work = "idle"
    """The state before `unverified`."""
    since: float | None = None
    """When the work that runs began."""
    by: K | None = None
    """The prompt that the work is for; `None` for work that the agent has begun by itself."""
    cancelled_at: float | None = None
    """When the work that runs was cancelled."""
    answered_at: float | None = None
    """When a prompt was answered last."""
    background: Sequence[Any] = ()
    """The work in the background that was listed last."""
    prompts: list[SentPrompt[K]] = []
    """Those that are not finished, in order."""
    resumes: int = 0
    """Requests in flight that resume the session: the states meanwhile are history, and the present
    one."""
    was_running: bool = False
    """Whether work ran when the first of them was sent."""

    # -- answers -----------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether a turn runs or is to come: work that is not idle, or a prompt."""
        return self.work != "idle" or bool(self.prompts)

    @property
    def is_open(self) -> bool:
        """Whether anything goes on, in the background as well."""
        return self.is_running or bool(self.background)

    @property
    def is_underway(self) -> bool:
        """Whether a turn runs that no open request stands for (version 2): work that is not idle,
        or a prompt that the agent has inserted."""
        return self.work != "idle" or any(each.progress != "sent" for each in self.prompts)

    @property
    def may_be_silent(self) -> bool:
        """Whether silence is no stall: the work waits for the user, or is not known."""
        return self.work in ("blocked", "unverified")

    @property
    def is_cancelled(self) -> bool:
        """Whether a turn was cancelled and continues."""
        return next(self.cancelled(), None) is not None

    @property
    def is_all_cancelled(self) -> bool:
        """Whether every turn that continues was cancelled, and one does."""
        is_work_cancelled = self.work == "idle" or self.cancelled_at is not None
        return (
            self.is_cancelled
            and is_work_cancelled
            and all(each.cancelled_at is not None for each in self.prompts)
        )

    @property
    def began_at(self) -> float | None:
        """When the earliest turn that runs began."""
        times = [each.sent_at for each in self.prompts]
        return min(times if self.since is None else [*times, self.since], default=None)

    def unanswered(self) -> Iterator[SentPrompt[K]]:
        """Prompts without an answer."""
        return (each for each in self.prompts if each.progress == "sent")

    def is_untouched(self, key: K) -> bool:
        """Whether a prompt without an answer has neither seen work begin nor been cancelled."""
        return any(
            each.key == key and not each.has_worked and each.cancelled_at is None
            for each in self.unanswered()
        )

    def cancelled(self) -> Iterator[float]:
        """When what continues was cancelled: the work, and prompts."""
        if self.cancelled_at is not None:
            yield self.cancelled_at
        yield from (each.cancelled_at for each in self.prompts if each.cancelled_at is not None)

    def cancelled_until(self, time: float) -> tuple[list[K], bool]:
        """What continues and was cancelled at or before this time: prompts without an answer, and
        whether there is more, which a state has to end (version 2)."""

        def is_late(cancelled_at: float | None) -> bool:
            return cancelled_at is not None and cancelled_at <= time

        late = [each for each in self.prompts if is_late(each.cancelled_at)]
        unanswered = [each.key for each in late if each.progress == "sent"]
        return unanswered, is_late(self.cancelled_at) or len(unanswered) < len(late)

    # -- what passes -------------------------------------------------------------------------------

    def prompt_sent(self, key: K, now: float) -> None:
        self.prompts.append(SentPrompt(key, now))

    def prompt_answered(
        self,
        key: K,
        now: float,
        *,
        accepted: bool,
        stop_reason: object = None,
        report: Any = None,
    ) -> Ended[K] | None:
        """Record the answer to a prompt: a result (`accepted`) or an error. Returns the end of the
        prompt, which in version 2 may be that of a turn that `state` has returned before."""
        for prompt in self.prompts:
            if prompt.key == key:
                break
        else:
            return None
        self.answered_at = now
        if accepted and prompt.ended is not None:
            self.prompts.remove(prompt)
            return msgspec.structs.replace(prompt.ended, prompts=(key,))
        if self.hop.version == 1 or stop_reason is not None:
            self.prompts.remove(prompt)
            reason = stop_reason if isinstance(stop_reason, str) else None
            return Ended(reason, (key,), prompt.cancelled_at is not None, report)
        if not accepted:
            self.prompts.remove(prompt)
        elif self.work in ("running", "blocked"):
            prompt.progress = "working"
            if self.by is None and prompt.has_worked:
                self.by = key
        else:
            prompt.progress = "inserted"
        return None

    def take(self, update: Mapping[str, Any], now: float, *, report: Any = None) -> Ended[K] | None:
        """Record an update of the session, or the `state` in one about a subagent; see `state`. The
        report of an end is the update, unless another one is given."""
        if update.get("sessionUpdate", "state_update") != "state_update":
            return None
        reason, background = update.get("stopReason"), update.get("background")
        return self.state(
            update.get("state"),
            now,
            stop_reason=reason,
            background=background,
            report=report or update,
        )

    def state(
        self,
        state: object,
        now: float,
        *,
        stop_reason: object = None,
        background: object = None,
        report: Any = None,
    ) -> Ended[K] | None:
        """Record a reported state (version 2), as on the wire. Returns the end of a turn."""
        work = _WORK_BY_STATE.get(state) if isinstance(state, str) else None
        if work is None or self.hop.version == 1:
            return None
        self.background = background if isinstance(background, list) else ()
        before = self.work
        if work in ("running", "blocked"):
            self.hop.reports_running = True
            if (self.last_known if before == "unverified" else before) == "idle":
                self._begin(now)
        elif work == "unverified" and before != "unverified":
            self.last_known = before
        self.work = work
        if self.resumes:
            return None
        if work in ("running", "blocked"):
            for prompt in self.prompts:
                if prompt.progress == "inserted":
                    prompt.progress = "working"
        elif work == "idle":
            return self._idle(before, stop_reason if isinstance(stop_reason, str) else None, report)
        return None

    def cancel(self, now: float) -> bool:
        """Record a `session/cancel`; whether there is a turn that it cancels. A prompt that is sent
        later belongs to another turn."""
        if self.work != "idle" and self.cancelled_at is None:
            self.cancelled_at = now
        for prompt in self.prompts:
            if prompt.cancelled_at is None:
                prompt.cancelled_at = now
        return self.is_running

    def closed(self) -> Ended[K] | None:
        """Record the end of the session. Prompts without an answer still get theirs."""
        self.background = ()
        if not self.is_underway:
            return None
        return self._end(None, None, ("inserted", "working"))

    def resume_sent(self) -> None:
        """Record a request that resumes the session: its states before the answer neither begin nor
        end a turn."""
        if not self.resumes:
            self.was_running = self.work != "idle"
        self.resumes += 1

    def resume_answered(self) -> Ended[K] | None:
        """Record its answer. Returns the end of a turn that ran before, and does not any more."""
        self.resumes = max(0, self.resumes - 1)
        if self.resumes:
            return None
        if self.work != "idle":
            for prompt in self.prompts:
                if prompt.progress == "inserted":
                    prompt.progress = "working"
            return None
        return self._end(None, None, ("working",)) if self.was_running else None

    def lost(self) -> tuple[tuple[K, ...], Ended[K] | None]:
        """Record the loss of the connection or the process. Returns the prompts that get an error
        as their answer, and the end of the turn that no open request stands for (version 2)."""
        unanswered = tuple(each.key for each in self.unanswered())
        ended = None
        if self.is_underway:
            ended = self._end("error", None, ("inserted", "working"))
        self.prompts.clear()
        self.background = ()
        self.resumes = 0
        return unanswered, ended

    # ----------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        if self.resumes:
            self.since = self.since if self.was_running else now
            return
        self.since = now
        if not self.prompts:
            return
        inserted = [each for each in self.prompts if each.progress == "inserted"]
        if inserted:
            self.by = inserted[0].key
        self.cancelled_at = (inserted or self.prompts)[0].cancelled_at
        for prompt in self.prompts:
            prompt.has_worked = True

    def _idle(self, before: Work, stop_reason: str | None, report: Any) -> Ended[K] | None:
        if before == "unverified":  # its `running` may not have been reported
            return self._end(stop_reason, report, ("inserted", "working"))
        if before != "idle":
            return self._end(stop_reason, report, ("working",))
        if stop_reason is None:
            return None  # a snapshot
        finished = [
            each
            for each in self.prompts
            if each.progress == "inserted"
            and (each.cancelled_at is not None or not self.hop.reports_running)
        ]
        if not finished:
            return None
        self.prompts = [each for each in self.prompts if each not in finished]
        is_cancelled = any(each.cancelled_at is not None for each in finished)
        return Ended(stop_reason, tuple(each.key for each in finished), is_cancelled, report)

    def _end(
        self, stop_reason: str | None, report: Any, progress: tuple[Progress, ...]
    ) -> Ended[K]:
        """End the work, and the prompts that are as far as this."""
        finished = [each for each in self.prompts if each.progress in progress]
        is_cancelled = self.cancelled_at is not None or any(
            each.cancelled_at is not None for each in finished
        )
        ended = Ended(stop_reason, tuple(each.key for each in finished), is_cancelled, report)
        self.prompts = [each for each in self.prompts if each not in finished]
        for prompt in self.unanswered():
            if prompt.has_worked:
                prompt.ended = ended
        self.work = "idle"
        self.since = self.by = self.cancelled_at = None
        return ended


class Turns(Generic[K]):
    """The turns of all sessions of one hop, in one version of the protocol.

    What `of(id)` returns records what passes (`prompt_sent`, `prompt_answered`, `take` for updates,
    `cancel`), returns the end of a turn, and tells whether one runs (`is_running`).
    """

    __slots__ = ("_sweep_at", "reports_running", "sessions", "version")

    def __init__(self, version: int = 1) -> None:
        self.version: int = version
        self.sessions: dict[str, SessionTurns[K]] = {}
        self.reports_running: bool = False
        """Whether the agent has ever reported that it works."""
        self._sweep_at = _MAX_SESSIONS

    def of(self, session: str) -> SessionTurns[K]:
        """The turns of a session, created on first use."""
        found = self.sessions.get(session)
        if found is None:
            if len(self.sessions) >= self._sweep_at:
                self._sweep()
            found = self.sessions[session] = SessionTurns(self)
        return found

    def of_agent(self, session: str) -> SessionTurns[K] | None:
        """The turns of a session that the agent names; `None` for an id that is not remembered."""
        found = self.sessions.get(session)
        if found is not None:
            return found
        if len(self.sessions) >= self._sweep_at:
            self._sweep()
        if len(session) > MAX_AGENTS_ID or len(self.sessions) >= _MAX_SESSIONS:
            return None
        return self.of(session)

    def is_cancelled(self, session: str) -> bool:
        """Whether a turn of this session was cancelled and continues."""
        return self.cancelled_since(session) is not None

    def cancelled_since(self, session: str) -> float | None:
        """When the earliest of what continues in this session was cancelled; `None` if nothing was,
        infinite while it is not known whether it continues."""
        found = self.sessions.get(session)
        if found is None or not found.is_cancelled:
            return None
        return float("inf") if found.work == "unverified" else min(found.cancelled())

    def lost(self) -> list[str]:
        """Record the loss of the connection or the process. Returns the sessions with a turn that
        no open request stands for (version 2)."""
        sessions, self.sessions, self.reports_running = self.sessions, {}, False
        return [name for name, each in sessions.items() if each.lost()[1] is not None]

    def _sweep(self) -> None:
        """Forget sessions without a turn."""
        kept = {name: each for name, each in self.sessions.items() if each.is_open or each.resumes}
        self.sessions = kept
        self._sweep_at = max(_MAX_SESSIONS, 2 * len(kept))
