"""Providers of MCP servers over ACP: a server of the SDK behind one of the bindings.

A provider is mounted on an endpoint of the testing kit (the client's, or a proxy's). It knows its
own binding and refuses the others, as software of one generation does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal

import attrs
import msgspec
import trio
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
)

from conductor.errors import RequestError
from conductor.proxy.mcp_server_host import HostedMcpServer

Binding = Literal["serverId", "acpId", "stateless"]
BINDINGS: tuple[Binding, ...] = ("serverId", "acpId", "stateless")


def is_served(binding: Binding, era: str) -> bool:
    """Whether a binding reaches a server: the stateless one carries only 2026-07-28."""
    return binding != "stateless" or era != "old"


ERAS = ("both", "old", "new")
SERVED = [(each, era) for each in BINDINGS for era in ERAS if is_served(each, era)]


def declaration(binding: Binding, name: str = "tools", id: str = "server-1") -> dict[str, Any]:
    return {"type": "acp", "name": name, "id" if binding == "acpId" else "serverId": id}


@attrs.define(eq=False)
class Outside:
    """Messages of a hosted server go to the consumer, in the binding."""

    provider: Provider
    connection: str | None

    def request(self, method: str, params: Any, answered: Any) -> Callable[[], None]:
        scope = trio.CancelScope()

        async def ask() -> None:
            carrier = self._carried(method, params)
            with scope:
                try:
                    result = await self.provider.endpoint.request("mcp/message", carrier)
                except RequestError as exc:
                    answered(None, msgspec.json.encode({"code": exc.code, "message": exc.message}))
                else:
                    answered(msgspec.json.encode(result), None)

        self.provider.endpoint.start_soon(ask)
        return scope.cancel

    async def notify(self, method: str, params: Any, about: int | str | None) -> None:
        self.provider.endpoint.notify("mcp/message", self._carried(method, params, about))

    def _carried(self, method: str, params: Any, about: int | str | None = None) -> dict[str, Any]:
        if self.connection is not None:
            head = {"connectionId": self.connection}
        else:
            head = {"serverId": self.provider.id, "requestId": about}
        return {**head, "method": method, **({"params": params} if params is not None else {})}


@attrs.define(eq=False)
class Provider:
    """`make` makes the server for one connection; `old`/`new` servers know one era only."""

    endpoint: Any
    binding: Binding
    make: Callable[[], Any]
    id: str = "server-1"
    era: Literal["both", "old", "new"] = "both"
    log: list[tuple[str, Any]] = attrs.field(factory=list)
    """Every `mcp/*` message, as it came."""
    connections: dict[str, HostedMcpServer] = attrs.field(factory=dict)
    _numbers: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def mount(self) -> Provider:
        handlers = {"mcp/message": self.message}
        if self.binding != "stateless":
            handlers |= {"mcp/connect": self.connect, "mcp/disconnect": self.disconnect}
        self.endpoint.handlers.update(handlers)
        return self

    def methods(self) -> list[str]:
        """The log in short: `mcp/connect`, or the method of the message inside."""
        return [p["method"] if m == "mcp/message" else m for m, p in self.log]

    def connect(self, params: Any) -> Any:
        self.log.append(("mcp/connect", params))
        if params.get(self.binding) != self.id:
            raise RequestError(-32602, f"no {self.binding} {self.id}")
        connection = f"connection-{next(self._numbers)}"
        self._host(connection, connection)
        return {"connectionId": connection}

    def disconnect(self, params: Any) -> Any:
        self.log.append(("mcp/disconnect", params))
        self.connections.pop(params["connectionId"]).close()
        return {}

    async def message(self, params: Any) -> Any:
        self.log.append(("mcp/message", params))
        method, inner = params["method"], params.get("params")
        self._check_era(method, inner)
        if self.binding == "stateless":
            if params.get("serverId") != self.id or "requestId" not in params:
                raise RequestError(-33001, "no such server")
            if "stateless" not in self.connections:
                self._host("stateless", None)
            try:
                result = await self._ask("stateless", method, inner, params["requestId"])
            except RequestError as exc:
                return {"error": {"code": exc.code, "message": exc.message}}
            return {"result": result}
        connection = params.get("connectionId")
        if connection not in self.connections:
            raise RequestError(-32602, "unknown connection")
        if method.startswith("notifications/"):
            self.connections[connection].notify(method, inner)
            return None
        return await self._ask(connection, method, inner, None)

    def _check_era(self, method: str, params: Any) -> None:
        modern = "io.modelcontextprotocol/protocolVersion" in ((params or {}).get("_meta") or {})
        if method.startswith("notifications/"):
            return
        if self.era == "old" and (modern or method == "server/discover"):
            raise RequestError(-32601, "Method not found")
        if self.era == "new" and not modern:
            raise RequestError(-32601, "Method not found")

    def _host(self, key: str, connection: str | None) -> None:
        hosted = self.connections[key] = HostedMcpServer(self.make, Outside(self, connection))
        self.endpoint.start_soon(hosted.run)

    async def _ask(self, key: str, method: str, params: Any, id: str | None) -> Any:
        arrived = trio.Event()
        answer: list[Any] = []

        def answered(result: bytes | None, error: bytes | None) -> None:
            answer[:] = result, error
            arrived.set()

        cancel = self.connections[key].request(method, params, answered, id)
        try:
            await arrived.wait()
        except trio.Cancelled:
            cancel()
            raise
        result, error = answer
        if error is not None:
            decoded = msgspec.json.decode(error)
            raise RequestError(decoded["code"], decoded["message"], decoded.get("data"))
        return msgspec.json.decode(result)


def toolbox() -> MCPServer:
    """A server with one tool of each kind that the tests need."""
    server = MCPServer("toolbox", instructions="Use the tools.")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        """Count, with progress."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
        return f"counted to {to}"

    @server.tool(structured_output=False)
    async def echo(text: str) -> str:
        """The text."""
        return text

    return server


_CONFIRM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def asking_old() -> Any:
    """A server whose tool sends `elicitation/create` while it runs (to 2025-11-25)."""

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        result = await ctx.session.elicit_form("Really?", _CONFIRM)
        return _text(f"confirmed: {result.content}")

    return Server("asking", on_list_tools=_one_tool, on_call_tool=call_tool)


def asking_new() -> Any:
    """A server whose tool answers that it needs input, and is called again (2026-07-28)."""

    async def call_tool(ctx: Any, params: Any) -> CallToolResult | InputRequiredResult:
        if params.input_responses is None:
            request = ElicitRequest(
                params=ElicitRequestFormParams(message="Really?", requested_schema=_CONFIRM)
            )
            return InputRequiredResult(input_requests={"q": request}, request_state="state")
        assert params.request_state == "state"
        return _text(f"confirmed: {params.input_responses['q'].content}")

    return Server("asking", on_list_tools=_one_tool, on_call_tool=call_tool)


async def _one_tool(ctx: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="confirm", input_schema={"type": "object"})])


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


@attrs.define(eq=False)
class Waiting:
    """A toolbox with a tool that waits until it is cancelled."""

    begun: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)

    def server(self) -> MCPServer:
        server = toolbox()

        @server.tool()
        async def wait() -> str:
            """Wait."""
            self.begun.set()
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled.set()

        return server
