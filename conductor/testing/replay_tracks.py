"""Tracks: the parts of a recorded conversation that are played one after the other, each in order.
Pure.

A client has one track: it acts by itself. An agent has a track for each request of the client: what
it sent, and waited for, because of that request. Tracks of an agent are independent, so that
several sessions can be replayed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from conductor.tracing.conversation import End, RecordedMessage

__all__ = ["tracks"]

_PROMPT: Final = "session/prompt"
BEGINNING: Final = -1
"""The track that no request begins."""


def tracks(messages: Sequence[RecordedMessage], side: End) -> dict[int, list[int]]:
    """The tracks of one side: indices of messages, by the index of the request that begins it."""
    if side == "client":
        return {BEGINNING: list(range(len(messages)))}
    return _agent_tracks(messages)


def _agent_tracks(messages: Sequence[RecordedMessage]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {BEGINNING: []}
    owners: dict[object, int] = {}
    """By id of a request of the agent: its track."""
    begun: dict[object, int] = {}
    """By id of a request of the client: its index."""
    sessions: dict[int, str | None] = {}
    """By index of a request of the client."""
    still_open: list[int] = []
    for index, message in enumerate(messages):
        if message.kind == "request" and message.sender == "client":
            found[index] = []
            begun[message.id], sessions[index] = index, message.session
            still_open.append(index)
            continue
        if message.kind == "response" and message.sender == "agent":
            owner = begun[message.id]
            still_open.remove(owner)
            sessions[owner] = sessions[owner] or message.session
        elif message.kind == "response":
            owner = owners[message.id]
        else:
            owner = _owner(message, messages, still_open, sessions)
            owners[message.id] = owner
        found[owner].append(index)
    return found


def _owner(
    message: RecordedMessage,
    messages: Sequence[RecordedMessage],
    still_open: Sequence[int],
    sessions: dict[int, str | None],
) -> int:
    """The client's request that a message belongs to: the open one of its session, or the last."""
    session = message.session
    candidates = [
        [each for each in still_open if sessions[each] == session and session is not None],
        [each for each in still_open if sessions[each] is None],
        [each for each in sessions if sessions[each] == session and session is not None],
        list(still_open),
        list(sessions),
    ]
    for some in candidates:
        if some:
            prompts = [each for each in some if messages[each].method == _PROMPT]
            return (prompts if some is candidates[0] and prompts else some)[-1]
    return BEGINNING
