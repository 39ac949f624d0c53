"""An agent that requires a login, by the method `browser`; with `null`, it answers null to
everything but `initialize`."""

import json
import sys

METHODS = [
    {"id": "browser", "name": "Log in with a browser", "description": "Opens a page"},
    {
        "id": "tui",
        "name": "Log in here",
        "type": "terminal",
        "args": ["--login"],
        "env": {"A": "b c"},
    },
]
logged_in = False

for line in sys.stdin:
    message = json.loads(line)
    method, params, answer = message["method"], message.get("params", {}), {}
    if method == "initialize":
        able = params["clientCapabilities"].get("auth", {}).get("terminal")
        answer["result"] = {"protocolVersion": 1, "authMethods": METHODS if able else METHODS[:1]}
    elif "null" in sys.argv:
        answer["result"] = None
    elif method == "authenticate":
        logged_in = params["methodId"] == "browser"
        answer["result"] = {}
    elif not logged_in:
        answer["error"] = {"code": -32000, "message": "Authentication required"}
    elif method == "session/new":
        answer["result"] = {"sessionId": "s1"}
    else:
        answer["result"] = {"stopReason": "end_turn"} if "turn" not in sys.argv else None
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
