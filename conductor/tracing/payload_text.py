"""Payloads as a trace has them, and values read from them: session id, the inner message of
`mcp/message`. Pure.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from conductor.acp import session_id_of
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch, params_at_start
from conductor.routing.trace import KeptPayload
from conductor.secrets.masking import mask

__all__ = [
    "InnerMessage",
    "Payloads",
    "kept",
    "mcp_message",
    "session_beginning",
    "session_of",
    "shown",
]

Payloads: TypeAlias = Literal["full", "head", "none"]
_HEAD: Final = 512
"""Bytes of a payload that a record keeps as `head` if it leaves the payload out."""
_MASKED_HEAD: Final = 2048
_SESSION: Final = re.compile(rb'"sessionId"\s*:\s*"([^"\\]*)"')
_session_first: Final = re.compile(rb'\{"sessionId":"([^"\\]*)"').match
_LF: Final = ord("\n")
"""An int: found in 0.03 µs, a bytes object in 0.2."""
_CR: Final = ord("\r")


class _McpMessage(msgspec.Struct):
    """Params of `mcp/message`."""

    method: str
    params: Raw = Raw(b"null")
    serverId: str | None = None
    connectionId: str | None = None
    acpId: str | None = None


_decode_mcp: Final = msgspec.json.Decoder(_McpMessage).decode


class InnerMessage(NamedTuple):
    """A message without the envelope of `mcp/message`."""

    protocol: Literal["acp", "mcp"]
    server: str | None
    method: str
    params: bytes | None


def shown(
    data: Payload | None, payloads: Payloads, *, is_whole: bool = True
) -> tuple[Raw | None, str | None, bool]:
    """The payload on one line; or its beginning, and whether something in that is masked."""
    if data is None:
        return None, None, False
    if is_whole and (payloads == "full" or (payloads == "head" and len(data) <= _HEAD)):
        data = bytes(data)
        if _LF in data or _CR in data:
            data = data.replace(b"\n", b" ").replace(b"\r", b" ")
        return Raw(data), None, False
    if payloads == "none":
        return None, None, False
    # Masked before it is cut: the rest of a secret would not be recognized.
    beginning = bytes(data)[:_MASKED_HEAD]
    masked = mask(beginning)
    return None, masked[:_HEAD].decode(errors="replace"), masked is not beginning


def kept(payload: KeptPayload) -> tuple[bytes | None, int, int, bool]:
    """`(kept bytes or None, bytes of the whole payload, number of messages, is it whole)`."""
    if payload is None:
        return None, 0, 1, True
    if isinstance(payload, tuple):
        start, size, messages = payload
        return params_at_start(start), size, messages, False
    assert not isinstance(payload, NotificationBatch)
    return bytes(payload), len(payload), 1, True


def session_of(data: Payload | None, *, is_whole: bool = True) -> str | None:
    """The session id in params or a result."""
    if data is None:
        return None
    found = _session_first(data) if is_whole else _SESSION.search(data)
    if found is not None:
        return found[1].decode(errors="replace")
    return session_id_of(bytes(data)) if is_whole else None


def session_beginning(params: bytes) -> bytes:
    """Params up to the end of the session id; empty if that does not come first."""
    found = _session_first(params)
    return b"" if found is None else found[0]


def mcp_message(method: str, data: bytes | None) -> InnerMessage:
    """The message in an `mcp/message`; any other is its own."""
    if method != "mcp/message" or data is None:
        return InnerMessage("acp", None, method, data)
    try:
        inner = _decode_mcp(data)
    except DECODE_ERRORS:
        return InnerMessage("acp", None, method, data)
    server = inner.serverId or inner.connectionId or inner.acpId
    return InnerMessage("mcp", server, inner.method, bytes(inner.params))
