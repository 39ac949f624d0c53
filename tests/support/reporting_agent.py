"""An agent that reports its MCP declarations in `_meta.given` of a new session, and starts none."""

from __future__ import annotations

REPORTING_AGENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        given = {"given": (message.get("params") or {}).get("mcpServers")}
        result = {
            "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
            "session/new": {"sessionId": "s1", "_meta": given},
        }.get(message["method"], {"stopReason": "end_turn"})
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        print(json.dumps(answer, separators=(",", ":")), flush=True)
"""
