"""Restart policy: restart, bypass or end the chain after a failure. Pure.

A restart budget is `count` restarts `within` so many seconds. Delays grow exponentially, with
jitter, so that components that fail together do not restart together. When the budget is spent, a
proxy that is not required is bypassed; any other component ends the chain.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

import msgspec

from conductor.chainfile.model import ComponentSpec, OnFailure, RestartBudget

__all__ = ["BYPASS", "END_CHAIN", "Decision", "RestartPolicy"]

_DEFAULT: Final = RestartBudget(count=3, within=60.0)
_DEFAULT_FOR_CONNECTIONS: Final = RestartBudget(count=10, within=120.0)
"""For `connect`, `ssh` and `unix`, about a minute of retries: a network outage, or the restart of a
service by its own supervisor, takes longer than the start of a program."""
_FIRST_DELAY: Final = 0.1
_MAX_DELAY: Final = 10.0


class Decision(msgspec.Struct, frozen=True):
    """What follows a failure; `text` says it to the user. A restart comes after `delay` seconds."""

    action: OnFailure
    text: str
    delay: float = 0.0


BYPASS: Final = Decision("bypass", "the chain goes on without it")
END_CHAIN: Final = Decision("end_chain", "the chain ends")


class RestartPolicy(msgspec.Struct, eq=False):
    """The policy of one component, and the failures that count against its budget."""

    role: Literal["proxy", "agent"]
    on_failure: OnFailure
    restarts: RestartBudget = _DEFAULT
    required: bool = False
    _failures: deque[float] = msgspec.field(default_factory=deque)

    @classmethod
    def of(cls, spec: ComponentSpec, role: Literal["proxy", "agent"]) -> RestartPolicy:
        """The policy that a chain file states; the default is `restart`."""
        on_failure = spec.on_failure or "restart"
        is_started_by_others = any((spec.connect, spec.ssh, spec.unix))
        default = _DEFAULT_FOR_CONNECTIONS if is_started_by_others else _DEFAULT
        return cls(role, on_failure, spec.restarts or default, spec.required)

    def after_failure(self, now: float, jitter: float) -> Decision:
        """Decide on a failure at `now` (seconds); `jitter` is a random number from 0 to 1."""
        match self.on_failure:
            case "restart":
                return self._restart(now, jitter)
            case "bypass":
                return self._bypass_or_end()
            case "end_chain":
                return END_CHAIN

    def _restart(self, now: float, jitter: float) -> Decision:
        failures = self._failures
        while failures and now - failures[0] >= self.restarts.within:
            failures.popleft()
        if len(failures) >= self.restarts.count:
            return self._bypass_or_end()
        failures.append(now)
        delay = min(_FIRST_DELAY * 4 ** min(len(failures) - 1, 10), _MAX_DELAY)
        text = f"it is restarted ({len(failures)} of {self.restarts.count})"
        return Decision("restart", text, delay * (0.5 + jitter / 2))

    def _bypass_or_end(self) -> Decision:
        return END_CHAIN if self.required or self.role == "agent" else BYPASS
