"""An MCP server on stdio: two tools on two pages, one that fails, one that never answers."""

import json
import os
import sys

TOOLS = ["add", "fail", "hang", "env"]


def result_of(method, params):
    match method, params.get("name"):
        case "initialize", _:
            info = {"name": "server", "version": "1"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list", _:
            first = "cursor" not in params
            names = TOOLS[:2] if first else TOOLS[2:]
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
            return {"tools": tools, **({"nextCursor": "2"} if first else {})}
        case "tools/call", "add":
            arguments = params["arguments"]
            return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}
        case "tools/call", "fail":
            return {"content": [{"type": "text", "text": "no"}], "isError": True}
        case "tools/call", "env":
            return {"content": [{"type": "text", "text": os.environ["GIVEN"]}]}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")), flush=True)


def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "notifications/cancelled":
            print(f"cancelled {params['requestId']}", file=sys.stderr)
        elif method == "tools/call" and params["name"] == "hang":
            continue
        elif "id" in message and method:
            result = result_of(method, params)
            if result is None:
                error = {"code": -32602, "message": f"Unknown tool: {params.get('name')}"}
                send({"id": message["id"], "error": error})
            else:
                send({"id": message["id"], "result": result})


main()
