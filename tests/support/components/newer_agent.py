"""An agent of a newer generation: each turn has a kind of update, a type of content and values of
enumerations that version 1 of the protocol does not have."""

from rpc import Component, Message

BLOCK = {"type": "card", "title": "Rain"}
CHUNK = "agent_message_chunk"
UPDATES = [
    {"sessionUpdate": "weather_update", "content": {"type": "text", "text": "Rain"}},
    {"sessionUpdate": CHUNK, "content": {"type": "card", "title": "Snow"}},
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "Look",
        "kind": "browse",
        "status": "queued",
    },
    {
        "sessionUpdate": "plan",
        "entries": [{"content": "go", "status": "blocked", "priority": "urgent"}],
    },
    {"sessionUpdate": CHUNK, "content": {"type": "text", "text": "done"}},
]
OPTIONS = [{"optionId": "yes", "name": "Yes", "kind": "allow_session"}]


class NewerAgent(Component):
    def handle(self, message: Message) -> None:
        match message["method"]:
            case "initialize":
                self.answer(message["id"], {"protocolVersion": 1, "agentCapabilities": {}})
            case "session/new":
                self.answer(message["id"], {"sessionId": "s"})
            case "session/prompt":
                self.prompt(message["id"])
            case "_vendor/echo":
                self.answer(message["id"], message["params"])
            case unknown if "id" in message:
                self.refuse(message["id"], -32601, "Method not found", unknown)

    def prompt(self, id: object) -> None:
        def answered(response: Message) -> None:
            content = {"type": "text", "text": "asked" if "result" in response else "refused"}
            update = {"sessionUpdate": CHUNK, "content": content}
            self.notify("session/update", {"sessionId": "s", "update": update})
            self.answer(id, {"stopReason": "paused"})

        for update in UPDATES:
            self.notify("session/update", {"sessionId": "s", "update": update})
        call = {"toolCallId": "c", "kind": "browse"}
        question = {"sessionId": "s", "toolCall": call, "options": OPTIONS}
        self.request("session/request_permission", question, answered)


if __name__ == "__main__":
    NewerAgent("agent").run()
