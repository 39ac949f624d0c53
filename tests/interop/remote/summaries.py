"""What of a conversation may differ between a pipe and a network."""

from __future__ import annotations

from typing import Any


def remote(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without that.

    Over HTTP, `initialize` tells the connection's id (RFD, "Streamable HTTP Message Flow"), and a
    session has a stream of its own: what belongs to no session is ordered by another stream.
    """
    summary["initialize"].pop("connectionId", None)
    kinds = ("asked", "told")
    events = summary["events"]
    summary["events"] = [
        *(event for event in events if event[0] not in kinds),
        *(event for event in events if event[0] in kinds),
    ]
    return summary
