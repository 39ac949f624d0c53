"""Exit codes of the command `acp-conductor`."""

from __future__ import annotations

import enum

__all__ = ["ExitCode"]


class ExitCode(enum.IntEnum):
    """Exit status of a process; 128 + n after signal n."""

    DONE = 0
    """It ended cleanly: the client left, or a command did its work."""
    FAILED = 1
    """It failed while it ran: a component ended the chain, a turn failed, or `doctor`, `trace diff`
    or another command found something wrong. The last lines on stderr say what."""
    USAGE = 2
    """Wrong arguments, or mistakes in the chain file: correct the place that stderr names."""
    NOT_STARTED = 3
    """A component did not start, or a server cannot listen: `check --start` and `doctor` say
    why."""
    REFUSAL = 10
    """`prompt`: the turn ended with the stop reason `refusal`."""
    MAX_TOKENS = 11
    """`prompt`: the stop reason is `max_tokens`."""
    MAX_TURN_REQUESTS = 12
    """`prompt`: the stop reason is `max_turn_requests`."""
    CANCELLED = 13
    """`prompt`: the stop reason is `cancelled`, by the agent or a proxy."""
    OTHER_STOP_REASON = 14
    """`prompt`: another stop reason."""
    NOT_EXECUTABLE = 126
    """`wrap` in a terminal: the agent's program cannot be executed."""
    NOT_FOUND = 127
    """`wrap` in a terminal: the agent's program was not found."""
