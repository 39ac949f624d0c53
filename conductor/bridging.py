"""What a bridge is built on: the parts of a connection, for whoever carries foreign traffic.

A proxy gets messages as Python values, and needs none of this. A bridge has a second side of its
own, a socket or a web server, where it is a JSON-RPC peer itself. Nothing is defined here; these
are the names that stay as they are for bridges, ours and others', while what is behind them moves.

Messages, a line to a `Message` (or what is `Malformed`) and back, with payloads that stay raw:
    `Message`, `ErrorObject`, `Malformed`, `Id`, `Payload`, `decode`, `encode_error`, `encode_id`,
    `request_pieces`, `notification_pieces`, `result_pieces`, `error_pieces`, the error codes, and
    the exceptions of a decoder (`DECODE_ERRORS`).
A request on its way, answered exactly once, and the callback that gets the answer to one's own:
    `InFlightRequest`, `ResponseCallback`.
A peer of one's own on any transport, what writes for it, and when its reader is too slow:
    `Connection`, `NotificationBatch`, `Limits`, `FlushScheduler`, `write_loop`, `HIGH_WATERMARK`.
What an agent is said to be able to:
    `with_mcp_over_acp`.
Names of MCP servers that the bridge renamed for the agent, for proxies that read tool names:
    `declared_server_names(result)` gives, for the decoded answer to a session set-up request, the
    declared names by the names that the agent was given: `{"tools-2": "tools"}`. The bridge puts
    them there with `with_server_names`; see `conductor.routing.server_names`.
"""

from __future__ import annotations

from conductor.jsonrpc.codec import DECODE_ERRORS, Malformed, decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    ErrorObject,
    Id,
    Message,
    Payload,
    encode_error,
    encode_id,
    error_pieces,
    notification_pieces,
    request_pieces,
    result_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.limits import Limits
from conductor.proxy.peers import ResponseCallback
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.server_names import declared_server_names, with_server_names
from conductor.transport.io_loop import HIGH_WATERMARK, Flusher, write_loop

__all__ = [
    "DECODE_ERRORS",
    "HIGH_WATERMARK",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "REQUEST_CANCELLED",
    "Connection",
    "ErrorObject",
    "Flusher",
    "Id",
    "InFlightRequest",
    "Limits",
    "Malformed",
    "Message",
    "NotificationBatch",
    "Payload",
    "ResponseCallback",
    "declared_server_names",
    "decode",
    "encode_error",
    "encode_id",
    "error_pieces",
    "notification_pieces",
    "request_pieces",
    "result_pieces",
    "with_mcp_over_acp",
    "with_server_names",
    "write_loop",
]
