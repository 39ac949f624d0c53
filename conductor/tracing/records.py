"""The records of a trace file: JSON Lines, in the order in which things happened. Pure.

The first line is a `TraceHeader`; each further line is a message that passed between two
components, or something that happened to one component. Keys `type`, `ts`, `protocol`, `from`,
`to`, `id`, `method`, `session`, `params`, `is_error`, `error_domain` and `payload` are those of the
trace files of the Rust conductor, and its viewer reads these files too; the others are additions.

Every message is recorded once per hop, without the successor envelope (`proxy/successor`) and, for
MCP over ACP, without `mcp/message`. A message that passes three components has three records; `n`
numbers the records of a trace, and `cause` links each to the record that it came from, where this
is known. The method comes before the payload or its `head`, as `secrets.masking` expects it.

Times: `ts` is in seconds since the header, monotonic; `time` in seconds since 1970.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias

import msgspec

from conductor.tracing.trace_component import TraceComponent

__all__ = [
    "FORMAT_VERSION",
    "Direction",
    "HandlerRecord",
    "LogRecord",
    "LossRecord",
    "MessageRecord",
    "NotificationRecord",
    "Record",
    "RequestRecord",
    "ResponseRecord",
    "StderrRecord",
    "TraceHeader",
]

Direction: TypeAlias = Literal["agent", "client"]
_PROXY: Final = re.compile(r"Proxy\((\d+)\)")
_INSERTED: Final = 10**6
"""Place of a component without a label: it was inserted later, before the agent. Also that of the
conductor itself, when it sends to the client."""
_KIND: Final = r'"sessionUpdate": ?"([a-z_]+)"'
FORMAT_VERSION: Final = 1


class _Base(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    ts: float
    time: float = 0.0
    chain: str = ""
    """The name of the chain; in the trace of a server, followed by `/` and a number."""


class TraceHeader(_Base, kw_only=True, omit_defaults=True, tag="trace"):
    """The first line, and the first of a chain in the trace of a server."""

    version: int = FORMAT_VERSION
    conductor: str = ""
    """The version of the conductor."""
    pid: int = 0
    payloads: Literal["full", "head", "none"] = "full"
    components: tuple[TraceComponent, ...] = ()
    """In the order of the chain, beginning with the client; a component that is inserted later (the
    MCP bridge) is only named in `sender` and `receiver`."""


class MessageRecord(_Base, kw_only=True, omit_defaults=True):
    """Common members of requests, responses and notifications."""

    n: int = 0
    """Number of the record, unique in the file."""
    from_: str = msgspec.field(name="from")
    to: str
    sender: str = ""
    """Name of the sending component."""
    receiver: str = ""
    hop: int = 0
    """0 is the hop between the client and the first component."""
    session: str | None = None
    size: int = 0
    """Bytes of the payload's raw JSON."""
    count: int = 1
    """Messages that the record stands for: the flight recorder keeps one of a batch of
    notifications, and `size` is that of all."""
    masked: bool = False
    """Whether secrets in the payload were replaced by `***`."""

    @property
    def content(self) -> Any:
        """The params, result or error; `None` if there are none, or not in the trace."""
        return self.payload if isinstance(self, ResponseRecord) else getattr(self, "params", None)

    @property
    def toward(self) -> Direction:
        """The end of the chain that it goes toward, from the labels of sender and receiver."""
        if self.from_ == "conductor":  # on behalf of a component that did not react
            return "client" if self.to == "Client" else "agent"
        if self.to == "conductor":
            return "client"
        return "agent" if _place(self.from_) < _place(self.to) else "client"


def _place(label: str) -> int:
    match label:
        case "Client":
            return -1
        case "Agent":
            return _INSERTED + 1
    found = _PROXY.fullmatch(label)
    return _INSERTED if found is None else min(int(found[1][:6]), _INSERTED - 1)


class RequestRecord(MessageRecord, kw_only=True, omit_defaults=True, tag="request"):
    protocol: Literal["acp", "mcp"]
    id: int | str | None
    """Equal to that of the response; a number of the trace, not the id on the wire."""
    method: str
    params: Any
    head: str | None = None
    """Beginning of the raw JSON of the params, if the record leaves them out (`payloads`)."""
    cause: int | None = None
    """The record of the message that it came from: of the same message one hop before, or of the
    message that the sending handler handles. Only known for plugins in this process."""
    wire_id: int | str | None = None
    """The sender's id."""
    mcp_server: str | None = None
    """Id of the server or of the connection, if the protocol is "mcp"."""


class NotificationRecord(MessageRecord, kw_only=True, omit_defaults=True, tag="notification"):
    protocol: Literal["acp", "mcp"]
    method: str
    params: Any
    head: str | None = None
    """Beginning of the raw JSON of the params, if the record leaves them out (`payloads`)."""
    cause: int | None = None
    request: int = 0
    """For `$/cancel_request`: `n` of the record of the request that it cancels on this hop."""
    mcp_server: str | None = None

    @property
    def update_kind(self) -> str | None:
        """The kind of a session update (`tool_call`, …), also if only its `head` is there."""
        if self.method != "session/update":
            return None
        match self.params:
            case {"update": {"sessionUpdate": str(kind)}}:
                return kind
        found = re.search(_KIND, self.head) if self.head else None
        return None if found is None else found[1]


class ResponseRecord(MessageRecord, kw_only=True, omit_defaults=True, tag="response"):
    id: int | str | None
    is_error: bool
    error_domain: Literal["acp", "mcp"] | None = None
    """For an error: the protocol of the request."""
    method: str = ""
    """The method of the request."""
    payload: Any
    head: str | None = None
    """Beginning of the raw JSON of the payload, if the record leaves it out (`payloads`)."""
    request: int = 0
    """`n` of the request's record."""
    elapsed: float = 0.0
    """Seconds since the request passed the same hop."""
    cause: int | None = None
    cancelled: bool = False
    """Whether the request had been cancelled."""


class HandlerRecord(_Base, kw_only=True, omit_defaults=True, tag="handler"):
    """A handler of a plugin has ended."""

    component: str
    message: int | None = None
    """`n` of the handled message's record."""
    method: str = ""
    handler: str = ""
    """Place of the handler, as `file:line`."""
    waited: float = 0.0
    """Seconds from the arrival of the message to the start of the handler: the lane was held."""
    took: float = 0.0
    """Seconds from its start to its end, with the time that it waited for responses."""
    outcome: Literal["forwarded", "answered", "dropped", "failed"] = "forwarded"
    """"answered": a request, without forwarding it; "dropped": a notification, likewise."""


class LogRecord(_Base, kw_only=True, omit_defaults=True, tag="log"):
    """A log event of the conductor, of any level: start, handshake, stop, restart, bypass, …"""

    level: str = "info"
    event: str = ""
    component: str | None = None
    message: int | None = None
    """`n` of the message that was being handled; the rule that decided about it, for example."""
    fields: dict[str, Any] = {}


class StderrRecord(_Base, kw_only=True, omit_defaults=True, tag="stderr"):
    """A line that a component wrote to stderr."""

    component: str
    text: str = ""


class LossRecord(_Base, kw_only=True, omit_defaults=True, tag="lost"):
    """Records were dropped here, because they came faster than they could be written."""

    count: int = 0


Record: TypeAlias = (
    TraceHeader
    | RequestRecord
    | NotificationRecord
    | ResponseRecord
    | HandlerRecord
    | LogRecord
    | StderrRecord
    | LossRecord
)
