"""Validation of POST bodies and headers. Pure.

Rules: RFD streamable-http-websocket-transport, "Content Negotiation and Validation", "Unified
Endpoint Routing". The server accepts known deviations: the Python SDK sends `session/load` and
similar requests, and its responses, without the session header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import msgspec
from msgspec import UNSET

from conductor.acp import SESSION_HEADER, session_id_of
from conductor.jsonrpc.codec import Batch, Malformed, decode
from conductor.jsonrpc.json_object import member_at, with_member
from conductor.jsonrpc.messages import PARSE_ERROR, Message
from conductor.routing.envelope import HANDSHAKE
from conductor.server.access import Refusal

__all__ = [
    "ATTACH_METHODS",
    "ENDPOINT_PATH",
    "PostedMessage",
    "accepts_event_stream",
    "is_json",
    "parse_post",
]

ENDPOINT_PATH: Final = "/acp"
_SESSION_METHODS: Final = frozenset(
    {
        "session/prompt",
        "session/cancel",
        "session/close",
        "session/set_config_option",
        "session/set_mode",
        "session/set_model",
    }
)
"""Methods that require a session open on this connection."""
ATTACH_METHODS: Final = frozenset(
    {"session/load", "session/resume", "session/fork", "session/delete"}
)
"""Methods that may name a session not open on this connection."""


@attrs.frozen
class PostedMessage:
    """A posted message in the form that is sent to the chain."""

    line: bytes
    message: Message | None
    """`None`: JSON, but not a valid message; the chain answers it with an error."""
    session: str | None = None
    by_header: bool = False
    """Whether the session was named by the header."""

    @property
    def method(self) -> str | None:
        if self.message is None or self.message.method is UNSET:
            return None
        return self.message.method

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.message is not None and self.message.id is not UNSET

    @property
    def is_initialize(self) -> bool:
        return self.method in HANDSHAKE and self.is_request

    @property
    def needs_session(self) -> bool:
        """Whether it is refused if its session is not open on this connection."""
        return self.method in _SESSION_METHODS


def parse_post(headers: Mapping[str, str], body: bytes) -> PostedMessage | Refusal:
    """Parse and validate a POST, apart from the state of the connection."""
    frame = decode(body)
    if isinstance(frame, Batch):
        return Refusal(501, "JSON-RPC batches are not supported over HTTP")
    if isinstance(frame, Malformed):
        if frame.code == PARSE_ERROR:
            return Refusal(400, f"Invalid JSON: {frame.reason}")
        if body.lstrip()[:1] != b"{":
            return Refusal(400, f"Invalid JSON-RPC: {frame.reason}")
        return PostedMessage(body, None)
    return _addressed(frame, body, headers.get(SESSION_HEADER))


def accepts_event_stream(accept: str) -> bool:
    """Whether an `Accept` header includes `text/event-stream`."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return "text/event-stream" in kinds


def is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _addressed(message: Message, body: bytes, header: str | None) -> PostedMessage | Refusal:
    method = message.method
    if method is UNSET or method.startswith("$/"):
        return PostedMessage(body, message, header, by_header=header is not None)
    params = None if message.params is UNSET else bytes(message.params)
    if params is not None and params.lstrip()[:1] == b"[":
        if header is not None:
            return Refusal(400, "Acp-Session-Id header requires object params")
        params = None
    named = session_id_of(params)
    if named is None and member_at(params or b"{}", "sessionId") not in (None, b"null"):
        return Refusal(400, "params.sessionId must be a string")
    if header is None:
        if method in _SESSION_METHODS or (method in ATTACH_METHODS and named is None):
            return Refusal(400, "Acp-Session-Id header required")
        return PostedMessage(body, message, named)
    if named is None and (method in _SESSION_METHODS or method in ATTACH_METHODS):
        amended = with_member(params or b"{}", ["sessionId"], msgspec.json.encode(header))
        line = msgspec.json.encode(msgspec.structs.replace(message, params=msgspec.Raw(amended)))
        return PostedMessage(line, message, header, by_header=True)
    if named is not None and named != header:
        return Refusal(400, "Acp-Session-Id header does not match params.sessionId")
    return PostedMessage(body, message, header, by_header=True)
