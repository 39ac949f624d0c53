"""The conversation at one end of a traced chain: what a replay plays. Pure.

The end of the client is the hop in front of it. That of the agent is the last hop before the MCP
bridge, or before the agent if there is no bridge: there, MCP servers of proxies are still reached
over ACP, so that a replayed agent calls their tools itself, without processes.

Left out are messages of the conductor's own work: a request that was routed again because the
bridge was inserted, and what was answered because the chain ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from conductor.jsonrpc.messages import CANCEL
from conductor.tracing.links import Message
from conductor.tracing.records import (
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    TraceHeader,
)

__all__ = ["ConversationError", "End", "RecordedMessage", "as_records", "conversation"]

End: TypeAlias = Literal["client", "agent"]

_BRIDGE: Final = "mcp-bridge"
_CHAIN_ENDED: Final = "The chain ended before this was answered"


class ConversationError(ValueError):
    """A trace that cannot be replayed; the message has the reason."""


@attrs.frozen
class RecordedMessage:
    """One message of a conversation between a client and an agent."""

    kind: Literal["request", "notification", "response"]
    sender: End
    id: int | str | None
    """Id of a request or response; `None` for a notification."""
    method: str
    """For a response, the method of its request."""
    payload: Any
    """The params, result or error; `None` if there are no params."""
    is_error: bool = False
    n: int = attrs.field(default=0, eq=False)
    """Number of its record."""
    ts: float = attrs.field(default=0.0, eq=False)
    """Seconds since the beginning."""
    mcp_server: str | None = None
    """Id of the server or connection, for an MCP message in `mcp/message`."""
    protocol: Literal["acp", "mcp"] = "acp"
    cancelled: bool = False
    """For a response: whether its request had been cancelled."""

    @property
    def label(self) -> str:
        """Short form: `session/update plan`, `answer to session/prompt`, as in a transcript."""
        match self.kind:
            case "response":
                return f"{'error' if self.is_error else 'answer'} to {self.method}"
            case "request":
                return f"{self.method}?"
        return f"{self.method} {self.update}" if self.update else self.method

    @property
    def update(self) -> str | None:
        """The kind of a session update."""
        update = self.payload.get("update") if isinstance(self.payload, dict) else None
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        return kind if isinstance(kind, str) else None

    @property
    def key(self) -> tuple[str, str, str | None, str]:
        """Equal for messages that correspond in two conversations."""
        return self.kind, self.method, self.update, self.protocol

    @property
    def session(self) -> str | None:
        """The session that the message is about, if it says so."""
        found = self.payload.get("sessionId") if isinstance(self.payload, dict) else None
        return found if isinstance(found, str) else None


def conversation(
    records: Iterable[Record], end: End, chain: str | None = None
) -> list[RecordedMessage]:
    """The messages at one end of a chain, in order.

    `chain` is the name of one chain in the trace of a server. Raises `ConversationError` if there
    are several and none is named, or if payloads are not in the trace.
    """
    records = list(records)
    name = _chain(records, chain)
    ended = _unanswered_at_the_end(records)
    inner = _behind_the_end(records)
    messages = []
    requests: dict[int, RequestRecord] = {}
    again = _routed_again(records)
    for record in records:
        if not isinstance(record, Message) or record.chain != name or record.n in again:
            continue
        sender = _sender(record, end, inner)
        is_cancellation = isinstance(record, NotificationRecord) and record.method == CANCEL
        if sender is None or is_cancellation:  # the responses tell which requests were cancelled
            continue
        if isinstance(record, ResponseRecord):
            asked = requests.get(record.request)
            is_last = record.is_error and _is_end_of_chain(record)
            if asked is None or is_last:
                continue
            record.method = record.method or asked.method
        elif isinstance(record, RequestRecord):
            if record.from_ == "conductor" or (record.n in ended and sender == "agent"):
                continue  # the conductor repeated a set-up to a restarted component
            requests[record.n] = record
        messages.append(_message(record, sender, requests))
    return messages


def as_records(messages: Sequence[RecordedMessage], end: End) -> list[Record]:
    """Records of a conversation, to be compared with those of another."""
    names = {"client": "client", "agent": "chain"} if end == "client" else {"client": "chain"}
    labels = {"client": "Client", "chain": "Proxy(0)", "agent": "Agent"}
    records: list[Record] = []
    for message in messages:
        receiver: End = "client" if message.sender == "agent" else "agent"
        places = [names.get(each, each) for each in (message.sender, receiver)]
        common: dict[str, Any] = {
            "ts": message.ts,
            "n": message.n,
            "session": message.session,
            "sender": places[0],
            "receiver": places[1],
            "from_": labels[places[0]],
            "to": labels[places[1]],
            "method": message.method,
        }
        sent = {"protocol": message.protocol, "params": message.payload}
        match message.kind:
            case "request":
                records.append(RequestRecord(**common, **sent, id=message.id))
            case "notification":
                records.append(NotificationRecord(**common, **sent))
            case "response":
                answered = {"is_error": message.is_error, "payload": message.payload}
                records.append(ResponseRecord(**common, **answered, id=message.id))
    return records


def _chain(records: Iterable[Record], wanted: str | None) -> str:
    names = list(dict.fromkeys(each.chain for each in records if isinstance(each, Message)))
    if wanted is not None:
        if wanted not in names:
            raise ConversationError(f"no chain is called {wanted!r}; there are: {', '.join(names)}")
        return wanted
    if len(names) > 1:
        raise ConversationError(f"there are several chains, choose one: {', '.join(names)}")
    if not names:
        raise ConversationError("there are no messages")
    return names[0]


def _behind_the_end(records: Iterable[Record]) -> set[str]:
    """Names of the components that a replayed agent replaces, besides the agent."""
    headers = [each for each in records if isinstance(each, TraceHeader)]
    bridges = (each.name for header in headers for each in header.components)
    return {_BRIDGE, *(name for name in bridges if name.startswith(f"{_BRIDGE}-"))}


def _sender(record: Message, end: End, inner: set[str]) -> End | None:
    """The end that sent a message, if it passed the hop of this end."""
    if end == "client":
        if "Client" not in (record.from_, record.to):
            return None
        return "client" if record.from_ == "Client" else "agent"
    inside = [
        label == "Agent" or name in inner
        for label, name in ((record.from_, record.sender), (record.to, record.receiver))
    ]
    if inside[0] == inside[1]:
        return None
    return "agent" if inside[0] else "client"


def _routed_again(records: Iterable[Record]) -> set[int]:
    """Requests that the same component sent again: the bridge was inserted behind it."""
    requests = {each.n: each for each in records if isinstance(each, RequestRecord)}
    found = set()
    for each in requests.values():
        cause = None if each.cause is None else requests.get(each.cause)
        if cause is not None and cause.sender == each.sender and cause.method == each.method:
            found.add(cause.n)
    return found


def _is_end_of_chain(response: ResponseRecord) -> bool:
    match response.payload:
        case {"message": str(text)}:
            return text == _CHAIN_ENDED
    return False


def _unanswered_at_the_end(records: Iterable[Record]) -> set[int]:
    """Requests that were open when the chain ended."""
    return {
        each.request
        for each in records
        if isinstance(each, ResponseRecord) and each.is_error and _is_end_of_chain(each)
    }


def _is_mcp(record: Message) -> bool:
    """Whether the size of a record is that of an envelope, too."""
    return not isinstance(record, ResponseRecord) and record.protocol == "mcp"


def _message(record: Message, sender: End, requests: dict[int, RequestRecord]) -> RecordedMessage:
    payload = record.payload if isinstance(record, ResponseRecord) else record.params
    is_empty = payload is None and record.size > len("null") and not _is_mcp(record)
    if record.head is not None or record.count > 1 or is_empty:
        raise ConversationError(
            f"the payload of #{record.n} {record.method} is not in it; record it with "
            "--trace-payloads full"
        )
    common: dict[str, Any] = {
        "sender": sender,
        "method": record.method,
        "payload": payload,
        "n": record.n,
        "ts": record.ts,
    }
    match record:
        case ResponseRecord():
            asked = requests[record.request]
            common |= {"is_error": record.is_error, "cancelled": record.cancelled}
            common |= {"protocol": asked.protocol, "mcp_server": asked.mcp_server}
            return RecordedMessage("response", id=asked.n, **common)
        case RequestRecord() | NotificationRecord():
            common |= {"protocol": record.protocol, "mcp_server": record.mcp_server}
    if isinstance(record, RequestRecord):
        return RecordedMessage("request", id=record.n, **common)
    return RecordedMessage("notification", id=None, **common)
