"""An agent that keeps its login in its process: `session/resume` and `session/new` require it. A
prompt ends the process at its first turn."""

import json
import os
import sys

METHODS = [
    {"id": "browser", "name": "Browser"},
    {"id": "key", "name": "A key", "type": "env_var", "vars": [{"name": "THE_KEY"}]},
]
logged_in = False

for line in sys.stdin:
    message = json.loads(line)
    method, answer = message["method"], {"result": {}}
    if method == "initialize":
        sessions = {"sessionCapabilities": {"resume": {}}}
        answer["result"] = {"protocolVersion": 1, "authMethods": METHODS}
        answer["result"]["agentCapabilities"] = sessions
    elif method in ("authenticate", "logout"):
        logged_in = method == "authenticate"
    elif method.startswith("session/") and not logged_in and method != "session/prompt":
        answer = {"error": {"code": -32000, "message": "Authentication required"}}
    elif method == "session/new":
        answer["result"] = {"sessionId": "s1"}
    elif method == "session/prompt":
        if message["params"]["prompt"][0]["text"] == "die":
            os._exit(1)
        answer["result"] = {"stopReason": "end_turn"}
    answer = {"jsonrpc": "2.0", "id": message["id"], **answer}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
