"""Matching of live messages to recorded ones. Pure.

Messages correspond by kind, method and, for session updates, the kind of the update: to the first
one with an equal payload, else to the next one of the same session, else to the next one. Ids and
times are not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, NamedTuple

import attrs

from conductor.testing.replay_values import ReplayValues
from conductor.tracing.comparison import Normalizer
from conductor.tracing.conversation import RecordedMessage

__all__ = ["ExpectedMessages", "Key", "Match", "key_of", "live_key"]

_MAX_COMPARED: Final = 32
"""Recorded messages that a live one is compared with."""


class Key(NamedTuple):
    """Key of a message: equal for messages that correspond."""

    kind: Literal["request", "notification", "response"]
    method: str
    update: str | None
    is_mcp: bool

    @property
    def label(self) -> str:
        return f"{self.method} {self.update}" if self.update else self.method


@attrs.frozen
class Match:
    """A recorded message, and whether its payload is equal to that of the live one."""

    index: int
    is_equal: bool


def key_of(message: RecordedMessage) -> Key:
    return Key(message.kind, message.method, message.update, message.protocol == "mcp")


def live_key(
    kind: Literal["request", "notification"], method: str, params: Any, mcp_server: str | None
) -> Key:
    message = RecordedMessage(kind, "client", None, method, params)
    return Key(kind, method, message.update, mcp_server is not None)


@attrs.define(eq=False)
class ExpectedMessages:
    """The recorded messages of the peer that have not come yet, by index."""

    messages: Mapping[int, RecordedMessage]
    values: ReplayValues
    ignored: Collection[str] = ()
    _waiting: defaultdict[Key, list[int]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    _counts: dict[Key, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for index, message in self.messages.items():
            self._waiting[key_of(message)].append(index)
        self._counts = {key: len(indices) for key, indices in self._waiting.items()}

    def take(self, key: Key, payload: Any) -> Match | None:
        """The message that a live one corresponds to; it is not expected any more."""
        waiting = self._waiting.get(key)
        if not waiting:
            return None
        normalizer = Normalizer(self.ignored)
        live = self.values.recorded(payload)
        shown = normalizer.normalize(live)
        for index in waiting[:_MAX_COMPARED]:
            if normalizer.normalize(self.messages[index].payload) == shown:
                waiting.remove(index)
                return Match(index, True)
        session = live.get("sessionId") if isinstance(live, dict) else None
        same = (i for i in waiting if self.messages[i].session == session)
        index = next(same, waiting[0])
        waiting.remove(index)
        return Match(index, False)

    def arrived(self, index: int) -> None:
        """A message has come that was found by its id."""
        waiting = self._waiting[key_of(self.messages[index])]
        if index in waiting:
            waiting.remove(index)

    def count(self, key: Key) -> int:
        """The number of recorded messages with a key."""
        return self._counts.get(key, 0)
