"""Differences between a conversation over a pipe and over a network."""

from __future__ import annotations

from typing import Any


def remote(summary: dict[str, Any], *, hasty: bool = False) -> dict[str, Any]:
    """A summary without that.

    Over HTTP, `initialize` tells the connection's id (RFD, "Streamable HTTP Message Flow"), and a
    session has a stream of its own: what belongs to no session is ordered by another stream. What
    is announced of a session waits for its stream, and comes together with what is asked for first.
    A `hasty` client, the Python SDK, hands over an answer at once, and an update in a task: answers
    are put behind the updates that follow them. Other clients show the order of the bytes.
    """
    summary["initialize"].pop("connectionId", None)
    summary["events"].sort(key=_apart)
    if hasty:
        summary["events"] = _answers_behind_updates(summary["events"])
    return summary


def _answers_behind_updates(events: list[list[Any]]) -> list[list[Any]]:
    ordered: list[list[Any]] = []
    answers: list[list[Any]] = []
    for event in events:
        if event[0] == "answer":
            answers.append(event)
            continue
        if event[0] != "update":
            ordered += answers
            answers = []
        ordered.append(event)
    return ordered + answers


def _apart(event: list[Any]) -> int:
    if event[0] in ("asked", "told"):
        return 2
    announced = event[0] == "update" and event[2]["sessionUpdate"] == "available_commands_update"
    return 0 if announced else 1
