"""MCP servers over ACP for agents that know only stdio or HTTP: a proxy before the agent.

    agent ─stdio─▶ shim ─socket─▶ door ─▶ consumer ─▶ link ─▶ provider ─mcp/*─▶ client side

`bridge` is the component; `declarations` and `bindings` are the words on the wire; a
`mcp_connection` is one MCP connection, whatever revisions and bindings its two ends speak
(`translation`).
"""
