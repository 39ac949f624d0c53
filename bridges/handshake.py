"""First request of an MCP connection: find the revisions of both ends, and choose a translator.

A consumer opens with `initialize` (revisions up to 2025-11-25) or `server/discover` (2026-07-28).
The request is forwarded unchanged, as a server of the same revision needs no translation. Only if
the server refuses, the bridge opens in the other revision and inserts a translator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from bridges.bindings import members_of, request_meta
from bridges.interfaces import NO_SOURCE, BridgeRuntime
from bridges.mcp_connection import ConnectionMode, McpConnection
from bridges.mcp_protocol import is_modern
from bridges.pass_through import PassThrough
from conductor.bridge_api import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.json_values import decode_value

__all__ = ["MODERN_VERSION", "McpHandshake", "offers_modern"]

MODERN_VERSION: Final = "2026-07-28"
"""The SDK's `MODERN_PROTOCOL_VERSIONS`, without the slow import of its types."""

_INITIALIZED: Final = "notifications/initialized"
_HANDSHAKE_VERSION: Final = "2025-11-25"
_IDENTITY: Final = {"name": "acp-conductor", "version": "1"}


_NOT_MODERN: Final = encode_error(
    INTERNAL_ERROR, f"The MCP server does not speak revision {MODERN_VERSION}"
)


class McpHandshake(ConnectionMode):
    """Mode of a connection until the revisions of both ends are known."""

    def __init__(self, mcp_connection: McpConnection, runtime: BridgeRuntime) -> None:
        super().__init__(mcp_connection)
        self._runtime = runtime

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method == "initialize":
            self._opened_by_initialize(call, params)
        elif method == "server/discover":
            self._opened_by_discover(call, params)
        elif is_modern(params):
            self._opened_by_request(call, method, params)
        elif method == "ping" and self.mcp_connection.provider.modern:
            self.mcp_connection.reply(call, b"{}", None)
        else:
            super().request(call, method, params)

    # -- legacy consumer (initialize) --------------------------------------------------------------

    def _opened_by_initialize(self, call: InFlightRequest, params: Payload | None) -> None:
        raw = bytes(params) if params is not None else b"{}"
        self.mcp_connection.pause()
        if self.mcp_connection.provider.modern:
            self._discover(
                call, lambda found, error: self._translate_for_legacy(call, raw, found, error)
            )
            return

        def answered(result: bytes | None, error: bytes | None) -> None:
            if result is not None or _is_cancelled(error):
                self.mcp_connection.reply(call, result, error)
                self.mcp_connection.resume(
                    PassThrough(self.mcp_connection) if result is not None else self
                )
            else:
                self._discover(
                    call, lambda found, _: self._translate_for_legacy(call, raw, found, error)
                )

        self.mcp_connection.ask(call, "initialize", params, answered)

    def _translate_for_legacy(
        self, call: InFlightRequest, params: bytes, found: bytes | None, error: bytes | None
    ) -> None:
        if found is None:
            self.mcp_connection.reply(call, None, error)
            self.mcp_connection.resume(self)
            return
        discovered = decode_value(found)

        def translate() -> None:
            from bridges.legacy_client_modern_server import LegacyClientModernServer

            mode = LegacyClientModernServer(
                self.mcp_connection, self._runtime, members_of(params), discovered
            )
            mode.request(call, "initialize", params)
            self.mcp_connection.resume(mode)

        self._runtime.prepare(lambda: self.mcp_connection.contain(call, translate))

    # -- modern consumer (server/discover) ---------------------------------------------------------

    def _opened_by_discover(self, call: InFlightRequest, params: Payload | None) -> None:
        raw = bytes(params) if params is not None else b"{}"
        self.mcp_connection.pause()

        def answered(result: bytes | None, error: bytes | None) -> None:
            if (result is not None and offers_modern(result)) or _is_cancelled(error):
                self.mcp_connection.reply(call, result, error)
                self.mcp_connection.resume(
                    PassThrough(self.mcp_connection) if result is not None else self
                )
                return

            def refused() -> None:
                self.mcp_connection.reply(call, result, error)
                self.mcp_connection.resume(self)

            self._translate_for_modern(call, "server/discover", raw, refused)

        self.mcp_connection.ask(call, "server/discover", params, answered)

    def _opened_by_request(
        self, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        """The consumer assumes revision 2026-07-28 without `server/discover`: verify it."""
        raw = bytes(params) if params is not None else b"{}"
        self.mcp_connection.pause()

        def pass_on() -> None:
            mode = PassThrough(self.mcp_connection)
            mode.request(call, method, raw)
            self.mcp_connection.resume(mode)

        def found(result: bytes | None, error: bytes | None) -> None:
            if result is not None:
                pass_on()
            else:
                self._translate_for_modern(call, method, raw, pass_on)

        self._discover(call, found)

    def _translate_for_modern(
        self, call: InFlightRequest, method: str, params: bytes, refused: Callable[[], None]
    ) -> None:
        """Initialize the server as a legacy client does, and translate for the modern consumer."""
        meta = request_meta(params)
        initialize_params = {
            "protocolVersion": _HANDSHAKE_VERSION,
            "capabilities": meta.get("io.modelcontextprotocol/clientCapabilities") or {},
            "clientInfo": meta.get("io.modelcontextprotocol/clientInfo") or _IDENTITY,
        }

        def answered(result: bytes | None, error: bytes | None) -> None:
            if self.mcp_connection.closed:
                return
            if result is None:
                refused()
                return
            initialized = decode_value(result)
            self.mcp_connection.provider.notify(_INITIALIZED, None)

            def translate() -> None:
                from bridges.modern_client_legacy_server import ModernClientLegacyServer

                mode = ModernClientLegacyServer(self.mcp_connection, initialized)
                mode.request(call, method, params)
                self.mcp_connection.resume(mode)

            self._runtime.prepare(lambda: self.mcp_connection.contain(call, translate))

        self._ask(call, "initialize", initialize_params, answered)

    # -- requests of the bridge itself -------------------------------------------------------------

    def _discover(self, call: InFlightRequest, found: ResponseCallback) -> None:
        """Send `server/discover` to the server; `found` gets a result only if it speaks 2026-07-28.

        `call` is the consumer's request, which is answered with an error if the server's response
        cannot be decoded."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": _IDENTITY,
        }

        def answered(result: bytes | None, error: bytes | None) -> None:
            if self.mcp_connection.closed:
                return
            if result is not None and not offers_modern(result):
                result, error = None, _NOT_MODERN
            found(result, error)

        self._ask(call, "server/discover", {"_meta": meta}, answered)

    def _ask(
        self, call: InFlightRequest, method: str, params: dict[str, Any], answered: ResponseCallback
    ) -> None:
        own = InFlightRequest(method, NO_SOURCE)

        def contained(result: bytes | None, error: bytes | None) -> None:
            own.answered = True
            self.mcp_connection.detach(call)
            self.mcp_connection.contain(call, answered, result, error)

        cancel = self.mcp_connection.provider.request(
            own, method, msgspec.json.encode(params), contained
        )
        if not own.answered:
            self.mcp_connection.attach(call, cancel)
            if call.cancelled:
                cancel()


def offers_modern(result: bytes) -> bool:
    """Whether a `server/discover` result lists revision 2026-07-28."""
    raw = members_of(result).get("supportedVersions")
    try:
        return raw is not None and MODERN_VERSION in decode_value(raw, type=list[str])
    except msgspec.MsgspecError:
        return False


def _is_cancelled(error: bytes | None) -> bool:
    raw = members_of(error).get("code") if error is not None else None
    return raw is not None and bytes(raw) == b"%d" % REQUEST_CANCELLED
