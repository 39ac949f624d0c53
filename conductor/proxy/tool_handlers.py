"""Handlers of a proxy with MCP servers: its methods that the agent reaches over MCP, or servers.

A proxy with methods (`mcp_methods`) declares an MCP server over ACP in every session that
`has_tools_for` selects, and answers the MCP messages that the agent, or the MCP bridge before it,
sends to that server, in any of the three bindings and with one server object per connection (RFD
mcp-over-acp). Calls run outside the lanes, so a method may send requests to the client and the
agent while it runs.
"""

from __future__ import annotations

import inspect
from typing import Any

import attrs

from conductor.acp import MCP_METHODS, SESSION_END_METHODS, SESSION_SETUP_METHODS
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.mcp_methods import ToolCall, ToolHost, mcp_methods, tool
from conductor.proxy.middleware import Body, Handler, Layer, Next, Sender, compose, handler_layer

__all__ = ["ToolCall", "tool", "with_tools"]


def with_tools(cls: type, handlers: tuple[Handler, ...]) -> tuple[Handler, ...]:
    """Return the handlers of a plugin class, wrapped in those that its tools need for the same
    messages: session set-up and end, and `mcp/*` from the agent."""
    own_servers = getattr(cls, "mcp_servers", None)
    offers = getattr(own_servers, "__qualname__", "") != "Proxy.mcp_servers"
    methods = mcp_methods(cls)
    if not methods and (own_servers is None or not offers):
        return handlers
    if own_servers is None:
        where = f"{cls.__name__}.{methods[0].attribute}"
        raise DeclarationError(f"{where}: only a Proxy can offer tools, resources and prompts")
    if offers:
        _check_mcp_servers(cls, own_servers)
    from conductor.proxy.tool_servers import on_mcp_message, on_session_end, on_session_setup

    by_key = {(h.method, sender): h for h in handlers for sender in h.senders}
    steps: dict[tuple[Sender, str], Any] = {
        **{("client", method): on_session_setup for method in sorted(SESSION_SETUP_METHODS)},
        **{("client", method): on_session_end for method in sorted(SESSION_END_METHODS)},
        **{("agent", method): on_mcp_message for method in sorted(MCP_METHODS)},
    }
    added: list[Handler] = []
    if ("initialize", "client") not in by_key:  # for `Plugin.protocol_version` and others
        added.append(compose("initialize", "client", ()))
    for (sender, method), step in steps.items():
        author = by_key.pop((method, sender), None)
        authors = [] if author is None else [handler_layer(author)]
        added.append(compose(method, sender, [_layer(step, method), *authors]))
    kept = []
    for handler in handlers:
        senders = tuple(s for s in handler.senders if (handler.method, s) in by_key)
        if senders:
            kept.append(handler if senders == handler.senders else _with_senders(handler, senders))
    return (*kept, *added)


def _check_mcp_servers(cls: type, function: Any) -> None:
    """Raise `DeclarationError` if `mcp_servers` takes something else than the session."""
    if not inspect.isfunction(function):
        raise DeclarationError(
            f"{cls.__name__}.mcp_servers is not an option: write `def mcp_servers(self, session)`"
        )
    taken = [*inspect.signature(function).parameters.values()][1:]
    needed = [each.name for each in taken if each.default is each.empty]
    if len(needed) > 1 or len(taken) > len(needed):
        shown = ", ".join(each.name for each in taken)
        raise DeclarationError(
            f"{cls.__name__}.mcp_servers takes ({shown}); write `def mcp_servers(self, session)`, "
            "with or without `async`"
        )
    if not needed and inspect.iscoroutinefunction(function):
        raise DeclarationError(
            f"{cls.__name__}.mcp_servers without a session cannot be `async`; write "
            "`async def mcp_servers(self, session)`"
        )


def _layer(step: Any, method: str) -> Layer:
    """The layer of a step of `tool_servers`."""
    from conductor.proxy.tool_servers import tool_servers_of

    async def handle(self: ToolHost, body: Body, call_next: Next) -> Body:
        async def forward(raw: bytes) -> bytes | None:
            return (await call_next(body if raw is body.raw else Body(raw))).raw

        return Body(await step(tool_servers_of(self), method, body.raw, forward))

    return Layer(handle)


def _with_senders(handler: Handler, senders: tuple[Any, ...]) -> Handler:
    return attrs.evolve(handler, senders=senders)
