"""MCP bridge: a proxy, last in the chain, for agents that do not support MCP servers over ACP.

    agent ─stdio─▶ shim ─socket─▶ ShimConsumer ─▶ McpConnection ─▶ AcpProvider ─mcp/*─▶ client side

`bridge.McpBridge` is the component. `declarations` and `declaration_rewriter` replace server
declarations in session set-ups, `bindings` encodes the `mcp/*` messages. A `McpConnection` joins a
consumer (shim, HTTP session, native agent) with a provider (server over ACP or HTTP; `interfaces`
has what both offer). Its modes: `handshake` finds the MCP revisions of both, `pass_through`
forwards, `legacy_client_modern_server` and `modern_client_legacy_server` translate.
May import the public modules of `conductor` (`proxy`, `bridge_api`, `log`, `errors`).
"""
