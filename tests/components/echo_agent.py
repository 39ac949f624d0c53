"""A deterministic ACP agent whose prompts are commands.

    echo TEXT    one chunk: TEXT                 stream N SIZE  N numbered chunks of SIZE bytes
    perm         asks permission                 read PATH      reads a file through the client
    wait         waits until it is cancelled     vendor TEXT    asks the client `_vendor/ask`
    die STATUS   exits at once

`[tag]`s before a command (pass_proxy.py --tag) come back before every reply. A prompt ends with
`end_turn`; after `session/cancel` with `cancelled`; after `$/cancel_request`, which also withdraws
the agent's own open question, with -32800. What is unknown is refused: -32601, data = the method.
"""

import json
import os
import re
from collections.abc import Callable
from typing import Any

from rpc import Component, Message, key

OPTIONS = ("allow", "reject")


class EchoAgent(Component):
    def __init__(self, name: str = "agent") -> None:
        super().__init__(name)
        self.sessions = 0
        self.turns: dict[str, Message] = {}  # the open prompts, by id
        self.questions: dict[str, str] = {}  # the agent's open requests, by the id of the prompt

    def handle(self, message: Message) -> None:
        params = message.get("params") or {}
        match message["method"]:
            case "initialize":
                self.answer(message["id"], self.capabilities(params["protocolVersion"]))
            case "session/new":
                self.sessions += 1
                self.answer(message["id"], {"sessionId": f"s{self.sessions}"})
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

    def capabilities(self, version: int) -> Message:
        names = ("agentInfo", "agentCapabilities") if version < 2 else ("info", "capabilities")
        values: tuple[Message, Message] = {"name": "echo-agent", "version": "1"}, {}
        return {"protocolVersion": version, **dict(zip(names, values, strict=True))}

    def prompt(self, turn: Message) -> None:
        text = "".join(block.get("text", "") for block in turn["params"]["prompt"])
        tags, command, argument = re.fullmatch(r"((?:\[.*?\])*)(\S*) ?(.*)", text, re.S).groups()
        session = {"sessionId": turn["params"]["sessionId"]}

        def say(reply: str) -> None:
            content = {"type": "text", "text": tags + reply}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            self.notify("session/update", session | {"update": update})

        match command:
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
        self.send({"id": turn["id"], **turn.get("answer", default)})


if __name__ == "__main__":
    EchoAgent().run()
