"""A client without capabilities, on the official Python SDK.

    py_plain_client.py PROMPT,PROMPT,… AGENT ARG…

It selects `on` for each configuration option that it shows, and the second option of each
permission request. It prints one line of JSON: types of the options, titles of the questions, the
text of the agent, and the exit status.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema


class Client:
    def __init__(self) -> None:
        self.questions: list[str] = []
        self.text = ""

    def on_connect(self, conn: acp.Agent) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        self.questions.append(tool_call.title)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[1].option_id)
        return acp.RequestPermissionResponse(outcome=outcome)


async def main(prompts: list[str], command: list[str]) -> dict[str, Any]:
    client = Client()
    options = {"stderr": None, "shutdown_timeout": 60.0}
    async with acp.spawn_agent_process(client, *command, transport_kwargs=options) as pair:
        agent, process = pair
        info = schema.Implementation(name="py-plain-client", version="1.0")
        await agent.initialize(1, client_info=info)
        session = await agent.new_session(str(Path.cwd()), mcp_servers=[])
        id, kinds = session.session_id, []
        for option in session.config_options or []:
            kinds.append(option.type)
            await agent.set_config_option(option.id, id, "on")
        for prompt in prompts:
            await agent.prompt(id, [acp.text_block(prompt)])
    told = {"options": kinds, "questions": client.questions, "text": client.text}
    return {**told, "exit": process.returncode}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1].split(","), sys.argv[2:]))))
