"""How an MCP connection begins: which revision the two ends share, or who has to translate.

A consumer opens with `initialize` (revisions to 2025-11-25) or with `server/discover` (2026-07-28).
It is passed on as it is, for a server that speaks the consumer's revision needs no help. Only when
the server refuses is it asked in the other way, and a translator takes its place between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from bridges.bindings import members_of
from bridges.mcp_connection import ConnectionMode, McpConnection, PassThrough, is_modern
from conductor.bridging import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    InFlightRequest,
    Payload,
    ResponseCallback,
    encode_error,
)

__all__ = ["MODERN_VERSION", "BridgeRuntime", "McpHandshake", "offers_modern"]

MODERN_VERSION: Final = "2026-07-28"
"""The SDK's `MODERN_PROTOCOL_VERSIONS`; its types are not imported for ends that agree."""

_INITIALIZED: Final = "notifications/initialized"
_HANDSHAKE_VERSION: Final = "2025-11-25"
_IDENTITY: Final = {"name": "acp-conductor", "version": "1"}


_NOT_MODERN: Final = encode_error(
    INTERNAL_ERROR, f"The MCP server does not speak revision {MODERN_VERSION}"
)


class BridgeRuntime(Protocol):
    """What a link needs of the world."""

    def prepare(self, then: Callable[[], None]) -> None:
        """InFlightRequest `then` once the types of MCP are imported."""

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """InFlightRequest `then` after a while."""


class McpHandshake(ConnectionMode):
    """The mode of a link whose revisions are not known yet."""

    def __init__(self, mcp_connection: McpConnection, runtime: BridgeRuntime) -> None:
        super().__init__(mcp_connection)
        self._runtime = runtime

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method == "initialize":
            self._opened_by_initialize(call, params)
        elif method == "server/discover":
            self._opened_by_discover(call, params)
        elif is_modern(params):
            self._opened_without_asking(call, method, params)
        elif method == "ping" and self.mcp_connection.provider.modern:
            self.mcp_connection.reply(call, b"{}", None)
        else:
            super().request(call, method, params)

    # -- an old consumer ---------------------------------------------------------------------------

    def _opened_by_initialize(self, call: InFlightRequest, params: Payload | None) -> None:
        raw = bytes(params) if params is not None else b"{}"
        self.mcp_connection.pause()
        if self.mcp_connection.provider.modern:
            self._discover(call, lambda found, error: self._translate_old(call, raw, found, error))
            return

        def answered(result: bytes | None, error: bytes | None) -> None:
            if result is not None or _is_cancelled(error):
                self.mcp_connection.reply(call, result, error)
                self.mcp_connection.resume(
                    PassThrough(self.mcp_connection) if result is not None else self
                )
            else:
                self._discover(call, lambda found, _: self._translate_old(call, raw, found, error))

        self.mcp_connection.ask(call, "initialize", params, answered)

    def _translate_old(
        self, call: InFlightRequest, params: bytes, found: bytes | None, error: bytes | None
    ) -> None:
        if found is None:
            self.mcp_connection.reply(call, None, error)
            self.mcp_connection.resume(self)
            return
        discovered = msgspec.json.decode(found)

        def translate() -> None:
            from bridges.legacy_client_modern_server import LegacyClientModernServer

            mode = LegacyClientModernServer(
                self.mcp_connection, self._runtime, members_of(params), discovered
            )
            mode.request(call, "initialize", params)
            self.mcp_connection.resume(mode)

        self._runtime.prepare(lambda: self.mcp_connection.contain(call, translate))

    # -- a new consumer ----------------------------------------------------------------------------

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

            self._translate_new(call, "server/discover", raw, refused)

        self.mcp_connection.ask(call, "server/discover", params, answered)

    def _opened_without_asking(
        self, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        """The consumer knows, or believes to know, that the server speaks the newest revision."""
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
                self._translate_new(call, method, raw, pass_on)

        self._discover(call, found)

    def _translate_new(
        self, call: InFlightRequest, method: str, params: bytes, refused: Callable[[], None]
    ) -> None:
        """Initialize the server as an old client would, and serve the new one."""
        meta = request_meta(params)
        hello = {
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
            initialized = msgspec.json.decode(result)
            self.mcp_connection.provider.notify(_INITIALIZED, None)

            def translate() -> None:
                from bridges.modern_client_legacy_server import ModernClientLegacyServer

                mode = ModernClientLegacyServer(self.mcp_connection, initialized)
                mode.request(call, method, params)
                self.mcp_connection.resume(mode)

            self._runtime.prepare(lambda: self.mcp_connection.contain(call, translate))

        self._ask(call, "initialize", hello, answered)

    # -- what the bridge asks itself ---------------------------------------------------------------

    def _discover(self, call: InFlightRequest, found: ResponseCallback) -> None:
        """Ask whether the server speaks the newest revision; a result says that it does. `call` is
        the consumer's, which is answered if the server's answer cannot be read."""
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


class _NoSource:
    """The source of what the bridge asks for itself."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        raise AssertionError("nobody asked")


NO_SOURCE: Final = _NoSource()


def offers_modern(result: bytes) -> bool:
    """Whether a `server/discover` answer names the newest revision."""
    raw = members_of(result).get("supportedVersions")
    try:
        return raw is not None and MODERN_VERSION in msgspec.json.decode(raw, type=list[str])
    except msgspec.MsgspecError:
        return False


def request_meta(params: bytes) -> dict[str, Any]:
    """The `_meta` of a request."""
    raw = members_of(params).get("_meta")
    value = msgspec.json.decode(raw) if raw is not None else None
    return value if isinstance(value, dict) else {}


def _is_cancelled(error: bytes | None) -> bool:
    raw = members_of(error).get("code") if error is not None else None
    return raw is not None and bytes(raw) == b"%d" % REQUEST_CANCELLED
