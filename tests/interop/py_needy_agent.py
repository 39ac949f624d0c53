"""An agent that uses what only some clients have, as far as the client announces it.

Written on the official Python SDK; ts_needy_agent.mjs is its twin. Prompts are commands:

    form      a choice of two colours, as an elicitation     option    the boolean option `fast`
    notice    a notice (the TypeScript SDK alone has them)   files     writes a file and reads it
    terminal  runs a command and shows its output

What it learns it says, or `not announced`.
"""

import asyncio
from typing import Any

import acp
from acp import schema

COLOURS = schema.ElicitationStringPropertySchema(type="string", enum=["red", "blue"])


class Agent:
    client: acp.Client
    known: schema.ClientCapabilities
    is_fast = False
    cwd = ""

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        **_: Any,
    ) -> acp.InitializeResponse:
        self.known = client_capabilities or schema.ClientCapabilities()
        return acp.InitializeResponse(protocol_version=1, auth_methods=[])

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        self.cwd = cwd
        return acp.NewSessionResponse(session_id="needy", config_options=self.options())

    def options(self) -> list[Any]:
        options = self.known.session and self.known.session.config_options
        if not options or options.boolean is None:
            return []
        fast = schema.SessionConfigOptionBoolean(
            id="fast", name="Fast", type="boolean", current_value=self.is_fast
        )
        return [fast]

    async def set_config_option(
        self, config_id: str, session_id: str, value: Any, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        if type(value) is not bool:
            raise acp.RequestError.invalid_params({"value": value})
        self.is_fast = value
        return schema.SetSessionConfigOptionResponse(config_options=self.options())

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> acp.PromptResponse:
        said = await getattr(self, prompt[0].text)(session_id)
        await self.client.session_update(session_id, acp.update_agent_message_text(f"{said};"))
        return acp.PromptResponse(stop_reason="end_turn")

    async def form(self, session: str) -> str:
        if self.known.elicitation is None or self.known.elicitation.form is None:
            return "not announced"
        fields = schema.ElicitationSchema(type="object", properties={"colour": COLOURS})
        mode = schema.ElicitationFormSessionMode(session_id=session, requested_schema=fields)
        answer = await self.client.create_elicitation("Which colour?", mode)
        return f"{answer.action} {answer.content['colour']}"

    async def option(self, session: str) -> str:
        return f"fast {str(self.is_fast).lower()}"

    async def files(self, session: str) -> str:
        if not (self.known.fs and self.known.fs.write_text_file):
            return "not announced"
        path = f"{self.cwd}/needy.txt"
        await self.client.write_text_file(session, path, "one\ntwo\n")
        return (await self.client.read_text_file(session, path, line=2, limit=1)).content.strip()

    async def terminal(self, session: str) -> str:
        if not self.known.terminal:
            return "not announced"
        id = (await self.client.create_terminal(session, "echo ran; exit 3")).terminal_id
        exit = await self.client.wait_for_terminal_exit(session, id)
        shown = await self.client.terminal_output(session, id)
        await self.client.release_terminal(session, id)
        return f"{shown.output.strip()} {exit.exit_code}"


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))
