"""The conversation at one end of a traced chain: what a replay plays. Pure.

The end of the client is the hop in front of it. That of the agent is the last hop before the MCP
bridge, or before the agent if there is no bridge: there, MCP servers of proxies are still reached
over ACP, so that a replayed agent calls their tools itself, without processes.

Left out are messages of the conductor's own work: a request that was routed again because the
bridge was inserted, and what was answered because the chain ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from conductor.jsonrpc.messages import CANCEL
from conductor.tracing.links import Message
from conductor.tracing.records import (
    Direction,
    NotificationRecord,
    Record,
    RequestRecord,
    ResponseRecord,
    TraceHeader,
)

__all__ = [
    "ConversationError",
    "End",
    "at_end",
    "conversation",
    "message_label",
    "session_in",
]

End: TypeAlias = Literal["client", "agent"]

_BRIDGE: Final = "mcp-bridge"
_CHAIN_ENDED: Final = "The chain ended before this was answered"


class ConversationError(ValueError):
    """A trace that cannot be replayed; the message has the reason."""


def conversation(records: Iterable[Record], end: End, chain: str | None = None) -> list[Message]:
    """The messages at one end of a chain, in order. Each is a copy: `at_end` tells where it passed,
    and `session` is the one that its content names.

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
        toward = _toward(record, end, inner)
        is_cancellation = isinstance(record, NotificationRecord) and record.method == CANCEL
        if toward is None or is_cancellation:  # the responses tell which requests were cancelled
            continue
        if isinstance(record, ResponseRecord):
            asked = requests.get(record.request)
            is_last = record.is_error and _is_end_of_chain(record)
            if asked is None or is_last:
                continue
            record.method = record.method or asked.method
        elif isinstance(record, RequestRecord):
            if record.from_ == "conductor" or (record.n in ended and toward == "client"):
                continue  # the conductor repeated a set-up to a restarted component
            requests[record.n] = record
        _check_content(record)
        session = session_in(record.content)
        messages.append(msgspec.structs.replace(record, **at_end(end, toward), session=session))
    return messages


def at_end(end: End, toward: Direction) -> dict[str, Any]:
    """The members of a message at one end of a chain that tell where it passed."""
    near, far = ("client", "chain") if end == "client" else ("chain", "agent")
    sender, receiver = (near, far) if toward == "agent" else (far, near)
    labels = {"client": "Client", "chain": "Proxy(0)", "agent": "Agent"}
    ends = {"sender": sender, "receiver": receiver}
    return {**ends, "from_": labels[sender], "to": labels[receiver], "hop": 0, "chain": ""}


def session_in(content: Any) -> str | None:
    """The session that a message is about, if it says so."""
    found = content.get("sessionId") if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


def message_label(message: Message) -> str:
    """Short form: `session/update plan`, `answer to session/prompt`, as in a transcript."""
    match message:
        case ResponseRecord():
            return f"{'error' if message.is_error else 'answer'} to {message.method}"
        case RequestRecord():
            return f"{message.method}?"
    return f"{message.method} {message.update_kind}" if message.update_kind else message.method


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


def _toward(record: Message, end: End, inner: set[str]) -> Direction | None:
    """The direction of a message, if it passed the hop of this end."""
    if end == "client":
        if "Client" not in (record.from_, record.to):
            return None
        return "agent" if record.from_ == "Client" else "client"
    inside = [
        label == "Agent" or name in inner
        for label, name in ((record.from_, record.sender), (record.to, record.receiver))
    ]
    if inside[0] == inside[1]:
        return None
    return "client" if inside[0] else "agent"


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


def _check_content(record: Message) -> None:
    is_empty = record.content is None and record.size > len("null") and not _is_mcp(record)
    if record.head is not None or record.count > 1 or is_empty:
        raise ConversationError(
            f"the payload of #{record.n} {record.method} is not in it; record it with "
            "--trace-payloads full"
        )
