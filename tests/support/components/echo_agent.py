"""A deterministic ACP agent whose prompts are commands.

    echo TEXT    one chunk: TEXT                 stream N SIZE  N numbered chunks of SIZE bytes
    perm         asks permission                 read PATH      reads a file through the client
    wait         waits until it is cancelled     vendor TEXT    asks the client `_vendor/ask`
    die STATUS   exits at once                   hang           reads nothing any more
    tool         starts a tool call, and waits   tooled         says that the tool call is done
    how          tells how it got the session: new, loaded, resumed
    seen METHOD  how many such requests this process has got
    mode MODE    the agent itself changes the mode
    settings     tells mode and options of the session

`[tag]`s before a command (pass_proxy.py --tag) come back before every reply. A prompt ends with
`end_turn`; after `session/cancel` with `cancelled`; after `$/cancel_request`, which also withdraws
the agent's own open question, with -32800. What is unknown is refused: -32601, data = the method.

`--back resume`, `--back load` and both: it can take up sessions that another process opened; only
then are prompts for sessions that it does not know refused. A load replays two updates first.
`--own-ids`: no other process of it gives
the same session ids. It takes any mode and option of a session; the mode `once` only if it has
created the session itself. `--only 2`: it refuses any other version. In version 2 a prompt is
answered at its beginning, and `state_update`s tell the rest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable

from rpc import Component, Message, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

OPTIONS = ("allow", "reject")


class EchoAgent(Component):
    def __init__(self, name: str = "agent") -> None:
        super().__init__(name)
        self.sessions = 0
        self.prefix = ""  # of the session ids
        self.back: list[str] = []  # how sessions of another process can be taken up
        self.only: int | None = None  # the only protocol version
        self.known: dict[str, str] = {}  # how it got which session
        self.seen: dict[str, int] = {}
        self.settings: dict[str, Message] = {}  # mode and options by session
        self.version = 1
        self.turns: dict[str, Message] = {}  # the open prompts, by id
        self.questions: dict[str, str] = {}  # the agent's open requests, by the id of the prompt

    def handle(self, message: Message) -> None:
        params = message.get("params") or {}
        self.seen[message["method"]] = self.seen.get(message["method"], 0) + 1
        match message["method"]:
            case "initialize" if self.only not in (None, params["protocolVersion"]):
                self.refuse(message["id"], -32602, "Invalid params", f"only version {self.only}")
            case "initialize":
                self.version = params["protocolVersion"]
                self.answer(message["id"], self.capabilities(params["protocolVersion"]))
            case "session/new":
                self.sessions += 1
                session = f"{self.prefix}s{self.sessions}"
                self.known[session] = "new"
                self.answer(message["id"], {"sessionId": session})
            case "session/set_mode" | "session/set_config_option":
                self.set(message["id"], **params)
            case "session/load" | "session/resume" as method if self.back:
                self.take_up(message["id"], method.removeprefix("session/"), params["sessionId"])
            case "session/close":
                self.answer(message["id"], {})
            case "session/prompt" if self.back and params["sessionId"] not in self.known:
                self.refuse(message["id"], -32002, "Unknown session", params["sessionId"])
            case "session/prompt":
                self.turns[key(message["id"])] = message
                self.prompt(message)
            case "session/cancel":
                for turn in list(self.turns.values()):
                    if turn["params"]["sessionId"] == params["sessionId"]:
                        self.cancel(turn, {"result": {"stopReason": "cancelled"}})
            case "$/cancel_request" if turn := self.turns.get(key(params["requestId"])):
                if question := self.questions.get(key(turn["id"])):
                    self.notify("$/cancel_request", {"requestId": question})
                self.cancel(turn, {"error": {"code": -32800, "message": "Request cancelled"}})
            case unknown if "id" in message:
                self.refuse(message["id"], -32601, "Method not found", unknown)

    def take_up(self, request_id: object, way: str, session: str) -> None:
        if way not in self.back:
            self.refuse(request_id, -32002, "Unknown session", session)
            return
        for text in ("replayed ", "history") if way == "load" else ():
            content = {"type": "text", "text": text}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            self.notify("session/update", {"sessionId": session, "update": update})
        self.known[session] = f"{way}ed" if way == "load" else "resumed"
        self.answer(request_id, {"modes": {"currentModeId": "ask", "availableModes": []}})

    def set(
        self, request_id: object, sessionId: str, configId: str = "mode", **params: Any
    ) -> None:
        value = params.get("modeId", params.get("value"))
        if value == "once" and self.known.get(sessionId) != "new":
            self.refuse(request_id, -32602, "No such mode", value)
            return
        self.settings.setdefault(sessionId, {})[configId] = value
        self.answer(request_id, {})

    def capabilities(self, version: int) -> Message:
        names = ("agentInfo", "agentCapabilities") if version < 2 else ("info", "capabilities")
        able: Message = {}
        if version < 2 and "load" in self.back:
            able["loadSession"] = True
        if version < 2 and "resume" in self.back:
            able["sessionCapabilities"] = {"resume": {}}
        values: tuple[Message, Message] = {"name": "echo-agent", "version": "1"}, able
        return {"protocolVersion": version, **dict(zip(names, values, strict=True))}

    def prompt(self, turn: Message) -> None:
        text = "".join(block.get("text", "") for block in turn["params"]["prompt"])
        tags, command, argument = re.fullmatch(r"((?:\[.*?\])*)(\S*) ?(.*)", text, re.S).groups()
        session = {"sessionId": turn["params"]["sessionId"]}

        def say(reply: str) -> None:
            content = {"type": "text", "text": tags + reply}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            self.notify("session/update", session | {"update": update})

        def tool(kind: str, status: str | None) -> None:
            update = {"sessionUpdate": kind, "toolCallId": "call-1", "title": "a tool"}
            self.notify(
                "session/update",
                session | {"update": update | ({} if status is None else {"status": status})},
            )

        if self.version == 2:
            self.answer(turn["id"], {})
            self.state(session, "running")
        match command:
            case "tool":
                return tool("tool_call", None)
            case "tooled":
                tool("tool_call_update", "completed")
            case "how":
                say(self.known.get(session["sessionId"], "unknown"))
            case "seen":
                say(str(self.seen.get(argument, 0)))
            case "mode":
                self.settings.setdefault(session["sessionId"], {})["mode"] = argument
                update = {"sessionUpdate": "current_mode_update", "currentModeId": argument}
                self.notify("session/update", session | {"update": update})
            case "settings":
                say(json.dumps(self.settings.get(session["sessionId"], {})))
            case "hang":
                while True:
                    signal.pause()
            case "stream":
                number, size = map(int, argument.split())
                for index in range(number):
                    say(f"{index:08d}".ljust(size, ".")[-size:])
            case "perm":
                options = [{"optionId": o, "name": o, "kind": f"{o}_once"} for o in OPTIONS]
                question = session | {"toolCall": {"toolCallId": "call-1"}, "options": options}
                return self.ask(turn, say, "session/request_permission", question)
            case "read":
                return self.ask(turn, say, "fs/read_text_file", session | {"path": argument})
            case "vendor":
                return self.ask(turn, say, "_vendor/ask", {"question": argument})
            case "wait":
                return say("waiting")
            case "die":
                os._exit(int(argument))
            case _:
                say(argument)
        return self.end(turn)

    def ask(self, turn: Message, say: Callable[[str], None], method: str, params: Any) -> None:
        def answered(response: Message) -> None:
            del self.questions[key(turn["id"])]
            match response.get("result"):
                case {"content": str(text)} | {"outcome": {"optionId": text}}:
                    say(text)
                case result:
                    say(json.dumps(result or response["error"]))
            self.end(turn)

        self.questions[key(turn["id"])] = self.request(method, params, answered)

    def cancel(self, turn: Message, answer: Message) -> None:
        turn["answer"] = answer
        if key(turn["id"]) not in self.questions:
            self.end(turn)

    def end(self, turn: Message) -> None:
        del self.turns[key(turn["id"])]
        default = {"result": {"stopReason": "end_turn"}}
        answer = turn.get("answer", default)
        if self.version < 2:
            self.send({"id": turn["id"], **answer})
        else:
            session = {"sessionId": turn["params"]["sessionId"]}
            self.state(session, "idle", **answer.get("result", {}))

    def state(self, session: Message, state: str, **more: Any) -> None:
        update = {"sessionUpdate": "state_update", "state": state, **more}
        self.notify("session/update", session | {"update": update})


def arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--back", action="append", choices=["load", "resume"], default=[])
    parser.add_argument("--own-ids", action="store_true")
    parser.add_argument("--only", type=int)
    return parser


if __name__ == "__main__":
    agent = EchoAgent()
    if sys.argv[1:]:
        import argparse

        given = arguments(argparse.ArgumentParser(description=__doc__)).parse_args()
        agent.back, agent.only = given.back, given.only
        agent.prefix = f"{os.getpid()}-" if given.own_ids else ""
    agent.run()
