"""MCP bridge: a proxy, last in the chain, for agents that do not support MCP servers over ACP.

    agent ─stdio─▶ shim ─socket─▶ ShimConsumer ─▶ McpConnection ─▶ AcpProvider ─mcp/*─▶ client side

`bridge.McpBridge` is the component. `declarations` replaces server declarations in session set-ups,
`bindings` encodes the `mcp/*` messages. An `McpConnection` joins a consumer (a shim, or an agent
that takes MCP over ACP) with a provider (server over ACP or HTTP); its modes, in `revisions`, find
the MCP revisions of both, and forward or translate.
May import the public modules of `conductor` (`proxy`, `bridge_api`, `log`, `errors`).
"""
