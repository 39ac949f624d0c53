"""An agent that requires a login, by the method `browser` or, with a variable, `key`; with `null`,
it answers null to everything but `initialize`; with `plain`, its login in a terminal has no
variables. With `--login`, it asks for a code on the terminal, shows how it was started, and exits
with 7."""

import json
import os
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
KEY = {
    "id": "key",
    "name": "A key",
    "type": "env_var",
    "vars": [{"name": "THE_KEY"}, {"name": "THE_URL", "optional": True}],
    "link": "https://example.com/keys",
}
if "plain" in sys.argv:
    METHODS[1]["env"] = {}
if "--acp" in sys.argv:
    METHODS.append(KEY)
logged_in = False

if "--login" in sys.argv:
    own, tty = os.environ.get("OWN"), sys.stdin.isatty()
    print("alone", os.getpid(), sys.argv[1:], tty, end=" ")
    print(repr(os.environ.get("A")), repr(own), os.getcwd(), flush=True)
    print("read", input("code? "))
    sys.exit(7)

for line in sys.stdin:
    message = json.loads(line)
    method, params, answer = message["method"], message.get("params", {}), {}
    if method == "initialize":
        able = params["clientCapabilities"].get("auth", {}).get("terminal")
        answer["result"] = {"protocolVersion": 1, "authMethods": METHODS if able else METHODS[:1]}
    elif "null" in sys.argv:
        answer["result"] = None
    elif method == "authenticate":
        logged_in = params["methodId"] in ("browser", "key")
        answer["result"] = {}
    elif not logged_in:
        answer["error"] = {"code": -32000, "message": "Authentication required"}
    elif method == "session/new":
        answer["result"] = {"sessionId": "s1"}
    else:
        answer["result"] = {"stopReason": "end_turn"} if "turn" not in sys.argv else None
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], **answer}
        print(json.dumps(answer, separators=(",", ":")), flush=True)
