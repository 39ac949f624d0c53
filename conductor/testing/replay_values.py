"""Messages of a recording as they are in a live conversation, and back. Pure.

Ids differ in every run: those that the live peer makes are learned from its messages, by their
place in the recorded ones, and put in place of the recorded ids. The same is done with the
working directory, also inside longer texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.tracing.comparison import IDS
from conductor.tracing.links import Message
from conductor.tracing.records import NotificationRecord, RequestRecord, ResponseRecord

__all__ = ["MCP_MESSAGE", "McpEnvelopes", "ReplayValues"]

MCP_MESSAGE: Final = "mcp/message"

_END: Final = r"(?![\w.-])"
"""After a directory: not a longer name."""


@attrs.define(eq=False)
class ReplayValues:
    """Replacements in messages that are sent; `recorded` reverts them in received ones."""

    _ids: dict[str, str] = attrs.field(factory=dict, init=False)
    """From recorded to live ids; `_back` is the other direction."""
    _back: dict[str, str] = attrs.field(factory=dict, init=False)
    _directory: tuple[str, str] | None = attrs.field(default=None, init=False)
    """The recorded and the live working directory."""

    def learn(self, recorded: Any, live: Any) -> None:
        """Take the ids of a live message that corresponds to a recorded one."""
        match recorded, live:
            case dict(), dict():
                for name in recorded.keys() & live.keys():
                    old, new = recorded[name], live[name]
                    is_id = name in IDS or name == "sessionId"
                    if is_id and isinstance(old, str) and isinstance(new, str):
                        self.set_id(old, new)
                    else:
                        self.learn(old, new)
            case [{"optionId": str()}, *_], [{"optionId": str()}, *_]:
                for old, new in _same_options(recorded, live):
                    self.set_id(old, new)
            case list(), list():
                for old, new in zip(recorded, live, strict=False):
                    self.learn(old, new)

    def set_id(self, recorded: str, live: str) -> None:
        self._ids[recorded] = live
        self._back[live] = recorded

    def set_directory(self, recorded: str, live: str) -> None:
        """Replace the working directory, also in texts that contain it; the first call counts."""
        if self._directory is None and recorded.strip("/"):
            self._directory = recorded, live

    def live(self, value: Any) -> Any:
        """A recorded value, as it is to be sent; one that is nested too deeply stays as it is."""
        return _replaced_or_same(value, self._ids, self._directory)

    def recorded(self, value: Any) -> Any:
        """A received value, as it would be in the recording."""
        directory = self._directory
        back = None if directory is None else (directory[1], directory[0])
        return _replaced_or_same(value, self._back, back)


class McpEnvelopes:
    """Puts messages into the envelopes of MCP over ACP: traces have the messages without them.

    A connection (`mcp/connect`) is in the trace, so its messages are those with its id. All others
    are of the stateless binding, where a request has an id of its own (`requestId`) and its
    notifications have that one.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._connections = {
            each.payload["connectionId"]
            for each in messages
            if isinstance(each, ResponseRecord)
            and each.method == "mcp/connect"
            and isinstance(each.payload, dict)
            and "connectionId" in each.payload
        }
        self._requests: dict[str, str] = {}
        """By recorded server: the `requestId` of its last stateless request."""

    def wrapped(
        self, message: RequestRecord | NotificationRecord, values: ReplayValues
    ) -> tuple[str, Any]:
        """Method and params as they are sent, with the ids of the live conversation."""
        params = values.live(message.params)
        server = message.mcp_server
        if message.protocol != "mcp" or server is None:
            return message.method, params
        inner = {"method": message.method} | ({} if params is None else {"params": params})
        live = values.live(server)
        if server in self._connections:
            return MCP_MESSAGE, {"connectionId": live, **inner}
        if isinstance(message, RequestRecord):
            self._requests[server] = f"replay-{message.n}"
        request = self._requests.get(server, "replay")
        return MCP_MESSAGE, {"serverId": live, "requestId": request, **inner}


def _same_options(recorded: Sequence[Any], live: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Pairs of ids of permission options of the same kind."""
    left = list(live)
    for option in recorded:
        kind = option.get("kind")
        found = next((each for each in left if each.get("kind") == kind), None)
        if found is not None:
            left.remove(found)
            yield option["optionId"], found["optionId"]


def _replaced_or_same(value: Any, ids: Mapping[str, str], directory: tuple[str, str] | None) -> Any:
    try:
        return _replaced(value, ids, directory)
    except RecursionError:
        return value


def _replaced(value: Any, ids: Mapping[str, str], directory: tuple[str, str] | None) -> Any:
    kind = type(value)
    if kind is str:
        if value in ids:
            return ids[value]
        if directory is None or directory[0] == directory[1] or directory[0] not in value:
            return value
        return re.sub(re.escape(directory[0]) + _END, lambda _: directory[1], value)
    if kind is dict:
        return {
            ids.get(name, name): _replaced(each, ids, directory) for name, each in value.items()
        }
    if kind is list:
        return [_replaced(each, ids, directory) for each in value]
    return float(value) if isinstance(value, float) else value  # one with its digits on the wire
