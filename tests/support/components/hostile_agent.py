"""echo_agent.py that does what its client tells it, for the growth test. More commands:

    blank N       N empty lines                 half         half an emoji in a chunk
    float         the answer's id as 3.0        deep N       a request nested N deep
    jwt N         N times `eyJ-`                key          a private key, in ranges of lines
    ask JSON      asks permission for this tool call, and says what was chosen
    tree N        a chain of N processes, of which all but one live in other process groups
    orphans N     kills itself; before, tells the ids of N processes, each in a session of its own
    shim N        connects to the session's first MCP server, and sends a message nested N deep
    flood         writes to that server what it takes in a second, before it is connected

`_meta` of `initialize`: with `"restart": PATH`, it is answered with protocol version 99 from the
second time on (PATH is made by the first); `"name"` is the agent's name.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from echo_agent import EchoAgent
from rpc import Message, key

BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
KEY_LINE = "MIIEpAIBAAKCAQEA7bXnPp0aK1qUeYtVwZr3sLh5Gk9JdMxQ2fBvCzTnWiOyRuEs"
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}\n'
)
TREE = '[ "$1" -gt 0 ] || { echo; exec sleep 60; }; setsid sh -c "$0" "$0" $(($1 - 1)) & wait'


class HostileAgent(EchoAgent):
    def __init__(self) -> None:
        super().__init__()
        self.servers: list[dict[str, Any]] = []
        self.told: Message = {}  # `_meta` of `initialize`

    def capabilities(self, version: int) -> Message:
        found = super().capabilities(version)
        if version < 2 and "name" in self.told:
            found["agentInfo"]["name"] = self.told["name"]
        return found

    def handle(self, message: Message) -> None:
        params = message.get("params") or {}
        if message["method"] == "session/new":
            self.servers = params["mcpServers"] or self.servers
        if message["method"] == "initialize":
            self.told = params.get("_meta") or {}
        if message["method"] == "initialize" and restarted(params):
            self.answer(message["id"], self.capabilities(1) | {"protocolVersion": 99})
        else:
            super().handle(message)

    def prompt(self, turn: Message) -> None:
        text = "".join(block.get("text", "") for block in turn["params"]["prompt"])
        command, _, argument = text.partition(" ")
        act = getattr(self, f"do_{command}", None)
        if act is None:
            super().prompt(turn)
        else:
            act(turn, argument)

    def say(self, turn: Message, text: str) -> None:
        update = {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text},
        }
        self.notify("session/update", {"sessionId": turn["params"]["sessionId"], "update": update})

    def do_blank(self, turn: Message, argument: str) -> None:
        self.write(b"\n" * int(argument))
        self.end(turn)

    def do_half(self, turn: Message, _: str) -> None:
        self.say(turn, "\ud83d")
        self.end(turn)

    def do_float(self, turn: Message, _: str) -> None:
        del self.turns[key(turn["id"])]
        self.answer(float(turn["id"]), {"stopReason": "end_turn"})

    def do_deep(self, turn: Message, argument: str) -> None:
        def answered(response: Message) -> None:
            self.say(turn, "answered")
            self.end(turn)

        depth = int(argument)
        self._callbacks[key("deep")] = answered
        nested = b"[" * depth + b"]" * depth
        line = b'{"jsonrpc":"2.0","id":"deep","method":"_x/y","params":{"a":%b}}\n' % nested
        self.write(line)

    def do_jwt(self, turn: Message, argument: str) -> None:
        self.say(turn, "eyJ-" * int(argument))
        self.end(turn)

    def do_key(self, turn: Message, _: str) -> None:
        for part in ([BEGIN, KEY_LINE], [KEY_LINE] * 3, [KEY_LINE, END]):
            self.say(turn, "\n".join(part) + "\n")
        self.end(turn)

    def do_ask(self, turn: Message, argument: str) -> None:
        options = [{"optionId": "yes", "name": "yes", "kind": "allow_once"}]
        question = {
            "sessionId": turn["params"]["sessionId"],
            "toolCall": json.loads(argument),
            "options": options,
        }
        self.ask(turn, lambda said: self.say(turn, said), "session/request_permission", question)

    def do_tree(self, turn: Message, argument: str) -> None:
        tree = subprocess.Popen(["sh", "-c", TREE, TREE, argument], stdout=subprocess.PIPE)
        assert tree.stdout is not None
        tree.stdout.readline()  # of the last process
        self.say(turn, f"tree {tree.pid}")
        self.end(turn)

    def do_orphans(self, turn: Message, argument: str) -> None:
        started = [
            subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(int(argument))
        ]
        self.say(turn, "orphans " + " ".join(str(each.pid) for each in started))
        os.kill(os.getpid(), signal.SIGKILL)

    def do_shim(self, turn: Message, argument: str) -> None:
        with self.open_server() as shim:
            depth = int(argument)
            nested = b"[" * depth + b"]" * depth
            shim.stdin.write(
                INITIALIZE + b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":%b}}\n' % nested
            )
            shim.stdin.flush()
            self.say(turn, "shim")
            time.sleep(1)  # no answer is waited for: the client may never give one
        self.end(turn)

    def do_flood(self, turn: Message, _: str) -> None:
        line = b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":"%b"}}\n' % (b"x" * 65_000)
        taken, end = 0, time.monotonic() + 1
        with self.open_server() as shim:
            os.set_blocking(shim.stdin.fileno(), False)
            rest = INITIALIZE + line
            while time.monotonic() < end:
                try:
                    count = os.write(shim.stdin.fileno(), rest)
                except BlockingIOError:
                    time.sleep(0.01)
                    continue
                taken, rest = taken + count, rest[count:] or line
        self.say(turn, f"taken {taken}")
        self.end(turn)

    def open_server(self) -> Any:
        server = self.servers[0]
        environment = {each["name"]: each["value"] for each in server.get("env", [])}
        return _Shim(
            [server["command"], *server["args"]],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
        )


class _Shim(subprocess.Popen):  # type: ignore[type-arg]
    """Killed at the end of its block."""

    def __exit__(self, *exc: object) -> None:
        self.kill()
        super().__exit__(None, None, None)


def restarted(params: Message) -> bool:
    """Whether an agent has been initialized with the mark of these params before."""
    mark = params.get("_meta", {}).get("restart")
    if mark is None:
        return False
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


if __name__ == "__main__":
    HostileAgent().run()
