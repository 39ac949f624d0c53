"""A plain ACP proxy: it forwards everything both ways, with ids of its own.

It uses the envelope of the dialect in which it was initialised. `--wrong` says what happens to an
`initialize` that it does not know: `error` is -32601, `echo` does what the Rust SDK 2.0 does (hands
it to the successor and waits), `close` is -32600 and the end, `silent` no answer. `--tag` prefixes
`NAME>` to the text of agent_message_chunks to the client and `[NAME]` to prompts to the agent.

A cancellation is accepted plain and in the envelope. Toward the agent it leaves in the form of the
dialect (`proxy`: plain, `_proxy`: enveloped); to the client, plain.
"""

from __future__ import annotations

import argparse
import sys

from rpc import Component, Message, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CANCEL = "$/cancel_request"


class PassProxy(Component):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options.name)
        self.options = options
        known = ("proxy", "_proxy") if options.dialect == "both" else (options.dialect,)
        self.dialects = {f"{dialect}/initialize": dialect for dialect in known}
        self.dialect: str = known[0]
        self.forwarded: dict[str, tuple[str, bool]] = {}  # id received -> id sent, to the agent?

    def handle(self, message: Message) -> None:
        method, params = message["method"], message.get("params")
        if method == f"{self.dialect}/successor":
            self.forward({**message, **params, "params": params.get("params")}, to_agent=False)
        elif dialect := self.dialects.get(method):
            self.dialect = dialect
            self.forward({**message, "method": "initialize"}, to_agent=True)
        elif method in ("initialize", "proxy/initialize", "_proxy/initialize"):
            self.misunderstand(message)
        else:
            self.forward(message, to_agent=True)

    def misunderstand(self, message: Message) -> None:
        match self.options.wrong:
            case "error":
                self.refuse(message["id"], -32601, "Method not found", message["method"])
            case "echo":
                self.forward(message, to_agent=True)
            case "close":
                self.refuse(message["id"], -32600, "Invalid request", "I am another proxy")
                sys.exit(0)

    def forward(self, message: Message, *, to_agent: bool) -> None:
        method, params = message["method"], message.get("params")
        if method == CANCEL:
            self.cancel(params)
            return
        if self.options.tag:
            self.tag(method, params, to_agent)
        if to_agent:
            method, params = f"{self.dialect}/successor", {"method": method, "params": params}
        if "id" not in message:
            self.notify(method, params)
            return
        received = message["id"]

        def give_back(response: Message) -> None:
            self.forwarded.pop(key(received), None)
            self.send({**response, "id": received})

        self.forwarded[key(received)] = self.request(method, params, give_back), to_agent

    def cancel(self, params: Any) -> None:
        sent, to_agent = self.forwarded.get(key(params.get("requestId")), (None, False))
        if sent is None:
            return
        params = {"requestId": sent}
        if to_agent and self.dialect == "_proxy":
            self.notify(f"{self.dialect}/successor", {"method": CANCEL, "params": params})
        else:
            self.notify(CANCEL, params)

    def tag(self, method: str, params: Any, to_agent: bool) -> None:
        if to_agent and method == "session/prompt":
            for block in params["prompt"]:
                if block["type"] == "text":
                    block["text"] = f"[{self.name}]{block['text']}"
        elif not to_agent and method == "session/update":
            match params["update"]:
                case {"sessionUpdate": "agent_message_chunk", "content": {"text": text} as content}:
                    content["text"] = f"{self.name}>{text}"


def arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--dialect", choices=["proxy", "_proxy", "both"], default="both")
    parser.add_argument("--wrong", choices=["error", "echo", "close", "silent"], default="error")
    parser.add_argument("--name", default="p")
    parser.add_argument("--tag", action="store_true")
    return parser


if __name__ == "__main__":
    PassProxy(arguments(argparse.ArgumentParser(description=__doc__)).parse_args()).run()
