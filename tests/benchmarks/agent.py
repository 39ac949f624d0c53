"""The agent of the benchmarks: it costs as little as a Python program can.

The text of a prompt tells it what to do before it answers:

    stream N SIZE   N numbered updates with SIZE bytes of text, written 64 KiB at a time
    flush N SIZE    the same with one write for each update, as agents do that wait for a model
    ask N           N permission requests, one after the other
    hold            no answer yet                   release   the answers to all that were held
    anything else   nothing

Ids of its own requests are small integers, to collide with the client's.
"""

from __future__ import annotations

import json
import os
from typing import Any

Message = dict[str, Any]

BLOCK = 65536
TEXT = 'The "quick" brown fox\n jumps over ☃ and \\ the lazy dog. '
OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


def filler(size: int) -> bytes:
    """A text of about this many bytes, as JSON has it, with something to escape in it."""
    text = TEXT * (size // len(TEXT) + 1)
    return json.dumps(text[: max(0, size - 8)], ensure_ascii=False)[1:-1].encode()


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class Agent:
    def __init__(self) -> None:
        self.sessions = 0
        self.asked = 0
        self.held: list[Any] = []
        self.questions: dict[int, tuple[Any, str, int]] = {}
        # id of a question -> id of the prompt, session, how many are left

    def take(self, message: Message) -> bytes:
        method, id = message.get("method"), message.get("id")
        if method is None:
            prompt, session, left = self.questions.pop(message["id"])
            return self.ask(prompt, session, left - 1) if left > 1 else self.end(prompt)
        if method == "session/prompt":
            params = message["params"]
            verb, *numbers = params["prompt"][0]["text"][:64].split()
            return self.prompt(id, params["sessionId"], verb, numbers)
        if method == "session/new":
            self.sessions += 1
            return self.answer(id, {"sessionId": f"session-{self.sessions}"})
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            return self.answer(id, {"protocolVersion": version, "agentCapabilities": {}})
        return b"" if id is None else self.answer(id, {})

    def prompt(self, id: Any, session: str, verb: str, numbers: list[str]) -> bytes:
        if verb in ("stream", "flush"):
            number, size = map(int, numbers)
            self.stream(session, number, size, BLOCK if verb == "stream" else 1)
        elif verb == "ask":
            return self.ask(id, session, int(numbers[0]))
        elif verb == "hold":
            self.held.append(id)
            return b""
        elif verb == "release":
            held, self.held = self.held, []
            return b"".join(map(self.end, [*held, id]))
        return self.end(id)

    def stream(self, session: str, number: int, size: int, block: int) -> None:
        content = {"type": "text", "text": "\0"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": session, "update": update}
        whole = line({"method": "session/update", "params": params})
        head, _, end = whole.partition(b"\\u0000")
        tail = filler(size) + end
        at_once = max(1, block // (len(head) + 8 + len(tail)))
        for first in range(0, number, at_once):
            some = range(first, min(first + at_once, number))
            write(b"".join([b"%b%08d%b" % (head, index, tail) for index in some]))

    def ask(self, prompt: Any, session: str, left: int) -> bytes:
        self.asked += 1
        self.questions[self.asked] = prompt, session, left
        tool_call = {"toolCallId": "call-1", "title": "Edit", "kind": "edit", "status": "pending"}
        params = {"sessionId": session, "toolCall": tool_call, "options": OPTIONS}
        question = {"id": self.asked, "method": "session/request_permission", "params": params}
        return line(question)

    def end(self, id: Any) -> bytes:
        return b'{"jsonrpc":"2.0","id":%b,"result":{"stopReason":"end_turn"}}\n' % (
            json.dumps(id).encode()
        )

    def answer(self, id: Any, result: Message) -> bytes:
        return line({"id": id, "result": result})


def line(message: Message) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def main() -> None:
    agent = Agent()
    pieces: list[bytes] = []
    while chunk := os.read(0, BLOCK):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0], pieces = b"".join([*pieces, lines[0]]), []
        pieces.append(rest)
        if out := b"".join([agent.take(json.loads(each)) for each in lines]):
            write(out)


if __name__ == "__main__":
    main()
