"""The public API of bridges: the parts of a JSON-RPC connection.

A proxy gets messages as Python values and needs none of this. A bridge is also a JSON-RPC peer on a
socket of its own. Nothing is defined here: the names stay, the modules behind
them may move.

Members of raw JSON, whose values keep their bytes:
    `member_at`, `members_or_empty`, `object_members`, `list_items`, `join_members`, `with_member`.
Messages: one line to a `Message` or `Malformed` and back; payloads stay raw JSON:
    `Message`, `Malformed`, `Id`, `Payload`, `decode`, `encode_error`, `encode_id`,
    `request_pieces`, `notification_pieces`, `error_to_exception`, the error codes,
    and the exceptions of a decoder (`DECODE_ERRORS`).
A request in flight, answered exactly once, and the callback for the response to a request:
    `InFlightRequest`, `ResponseCallback`.
A peer on descriptors, the task that writes to it, and its high-water mark:
    `Connection`, `NotificationBatch`, `Limits`, `Flusher`, `write_loop`, `HIGH_WATERMARK`,
    `FdTransport`.
Capabilities of the agent in an `initialize` result:
    `with_mcp_over_acp`.
Names of MCP servers that the bridge renamed for the agent, for proxies that read tool names:
    `declared_server_names(result)` reads the decoded result of a session set-up request and maps
    the agent's names to the declared ones: `{"tools-2": "tools"}`. The bridge adds them with
    `with_server_names`; see `conductor.routing.proxy_meta`.
Notices of the conductor to the user, in the form that the client supports:
    `Notices` and their `Severity`.
An HTTP client that reads no more of an answer than may be kept (imported with the name):
    `bounded_client`.
A listener that survives a lack of descriptors, and the user at the other end of a Unix socket:
    `accept`, `is_same_user`.
Imports that take long, beside the event loop:
    `import_in_thread`.
A task that a handler starts, and that serves others: what it sends is not caused by the handler's
message, once it has called
    `begin_worker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conductor.jsonrpc.codec import DECODE_ERRORS, Malformed, decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import (
    join_members,
    list_items,
    member_at,
    members_or_empty,
    object_members,
    with_member,
)
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    Id,
    Message,
    Payload,
    encode_error,
    encode_id,
    error_to_exception,
    notification_pieces,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.limits import Limits
from conductor.network.peer_user import is_same_user
from conductor.network.sockets import accept
from conductor.plugins.handler_call import begin_worker
from conductor.proxy.import_guard import import_in_thread
from conductor.proxy.peers import ResponseCallback
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.notices import Notices, Severity
from conductor.routing.proxy_meta import declared_server_names, with_server_names
from conductor.transport.fd_transport import FdTransport
from conductor.transport.io_loop import HIGH_WATERMARK, Flusher, write_loop

if TYPE_CHECKING:
    from conductor.network.bounded_http import bounded_client

__all__ = [
    "DECODE_ERRORS",
    "HIGH_WATERMARK",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "REQUEST_CANCELLED",
    "Connection",
    "FdTransport",
    "Flusher",
    "Id",
    "InFlightRequest",
    "Limits",
    "Malformed",
    "Message",
    "Notices",
    "NotificationBatch",
    "Payload",
    "ResponseCallback",
    "Severity",
    "accept",
    "begin_worker",
    "bounded_client",
    "declared_server_names",
    "decode",
    "encode_error",
    "encode_id",
    "error_to_exception",
    "import_in_thread",
    "is_same_user",
    "join_members",
    "list_items",
    "member_at",
    "members_or_empty",
    "notification_pieces",
    "object_members",
    "request_pieces",
    "with_mcp_over_acp",
    "with_member",
    "with_server_names",
    "write_loop",
]


def __getattr__(name: str) -> Any:
    if name == "bounded_client":
        from conductor.network.bounded_http import bounded_client

        return bounded_client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
