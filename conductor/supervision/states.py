"""State table of a supervised component. Pure.

    STARTING ──INITIALIZED──▶ RUNNING ──RESTART──▶ BACKING_OFF ──STARTED──▶ REPLAYING
    (RETRY: again in            ▲                  (waits for `start_at`)      │
    the other dialect)          └─────────────────REPLAYED─────────────────────┘

A failure in REPLAYING, and a process that cannot be started in BACKING_OFF, are failures as in
RUNNING: the restart policy decides (RESTART, FAIL or, for a bypass, STOP). FAIL leads from every
state to FAILED, STOP to STOPPING; in these, events of starts and restarts are ignored. A failure
before the first INITIALIZED is never followed by RESTART.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

import msgspec

__all__ = ["TRANSITIONS", "Event", "Lifecycle", "State"]


class State(enum.Enum):
    """State of a supervised component."""

    STARTING = enum.auto()
    """The first handshake is not complete; it may need a second process for the other dialect."""
    RUNNING = enum.auto()
    """Initialized; messages pass."""
    BACKING_OFF = enum.auto()
    """Failed after it was initialized; the next process starts at `Lifecycle.start_at`."""
    REPLAYING = enum.auto()
    """A new process repeats the handshake and the session set-up; messages wait in the queue."""
    STOPPING = enum.auto()
    """The chain stops or bypasses it; no further process is started."""
    FAILED = enum.auto()
    """Failed for good: reported to the chain once, which stops it."""
    ENDED = enum.auto()
    """`run` has returned: the process has exited, and its resources are released."""


class Event(enum.Enum):
    """Causes of a transition."""

    INITIALIZED = enum.auto()
    """The first handshake succeeded."""
    RETRY = enum.auto()
    """The process ended; the handshake continues in a new one, in the other dialect."""
    RESTART = enum.auto()
    """The component failed, and the restart policy allows another process after a delay."""
    STARTED = enum.auto()
    """The process of a RETRY or RESTART was started."""
    REPLAYED = enum.auto()
    """The new process has the state of the one before."""
    FAIL = enum.auto()
    """The start failed, or the restart policy ends the chain."""
    STOP = enum.auto()
    """The chain stops or bypasses the component."""
    ENDED = enum.auto()
    """`run` returns."""


_FROM_EVERY_STATE: Final = {
    Event.FAIL: State.FAILED,
    Event.STOP: State.STOPPING,
    Event.ENDED: State.ENDED,
}

TRANSITIONS: Final = MappingProxyType(
    {
        State.STARTING: {
            Event.INITIALIZED: State.RUNNING,
            Event.RETRY: State.STARTING,
            Event.STARTED: State.STARTING,
            **_FROM_EVERY_STATE,
        },
        State.RUNNING: {Event.RESTART: State.BACKING_OFF, **_FROM_EVERY_STATE},
        State.BACKING_OFF: {
            Event.STARTED: State.REPLAYING,
            Event.RESTART: State.BACKING_OFF,
            **_FROM_EVERY_STATE,
        },
        State.REPLAYING: {
            Event.REPLAYED: State.RUNNING,
            Event.RESTART: State.BACKING_OFF,
            **_FROM_EVERY_STATE,
        },
        State.STOPPING: {**dict.fromkeys(Event, State.STOPPING), **_FROM_EVERY_STATE},
        State.FAILED: {**dict.fromkeys(Event, State.FAILED), Event.ENDED: State.ENDED},
        State.ENDED: dict.fromkeys(Event, State.ENDED),
    }
)
"""The next state by state and event. An event that is missing is a bug of the supervisor."""


class Lifecycle(msgspec.Struct, eq=False):
    """The state of one component, and what is known in it. Times are in seconds of the caller's
    clock."""

    state: State = State.STARTING
    was_initialized: bool = False
    """Whether it has been RUNNING: the restart policy decides on later failures."""
    start_at: float | None = None
    """Time of the next start, in BACKING_OFF and after RETRY."""

    def on(self, event: Event, *, start_at: float | None = None) -> None:
        """Make a transition. `start_at` is the time of the next start, for RETRY and RESTART.

        Raises `KeyError` for an event that is impossible in the present state.
        """
        self.state = TRANSITIONS[self.state][event]
        self.was_initialized = self.was_initialized or self.state is State.RUNNING
        self.start_at = None if self.is_stopping else start_at

    @property
    def is_stopping(self) -> bool:
        """Whether no further process is started."""
        return self.state in (State.STOPPING, State.FAILED, State.ENDED)
