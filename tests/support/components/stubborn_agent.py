"""An agent that says "waiting" and then ignores everything: cancellations, EOF and SIGTERM."""

import json
import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            send(id=message["id"], result={"protocolVersion": 1})
        case "session/new":
            send(id=message["id"], result={"sessionId": "s"})
        case "session/prompt":
            content = {"type": "text", "text": "waiting"}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            send(method="session/update", params={"sessionId": "s", "update": update})
while True:
    signal.pause()
