"""An agent with `session/close`, and session ids that no other process of it gives."""

import os

from echo_agent import EchoAgent
from rpc import Message


class ClosingAgent(EchoAgent):
    def handle(self, message: Message) -> None:
        if message["method"] == "session/close":
            self.answer(message["id"], {})
        else:
            super().handle(message)


if __name__ == "__main__":
    agent = ClosingAgent()
    agent.prefix = f"{os.getpid()}-"
    agent.run()
