"""An agent written on the official Python SDK; ts_agent.mjs is its twin.

Prompts are commands, which may follow `[tag]`s that proxies have put there:

    hello          a thought, a plan and two chunks     big N     one chunk of N bytes
    permission     a tool call that asks first          ask       asks the client `_vendor/ask`
    read PATH      a chunk with line 2 of PATH          wait      a chunk, then waits for the cancel

The text comes back with its tags in the first chunk, `_meta` of the prompt in the response.
"""

import asyncio
import json
import re
from typing import Any

import acp
from acp import schema

CAPABILITIES = schema.AgentCapabilities(
    load_session=False,
    prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
    mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
)
OPTIONS = [
    schema.PermissionOption(option_id="yes", name="Yes, once", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="Not now", kind="reject_once"),
]


class Agent:
    client: acp.Client

    def __init__(self) -> None:
        self.sessions = 0
        self.cancelled: dict[str, asyncio.Event] = {}

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        info = schema.Implementation(name="py-agent", title="Python agent", version="1.0")
        return acp.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_capabilities=CAPABILITIES,
            agent_info=info,
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> acp.NewSessionResponse:
        self.sessions += 1
        session_id = f"py-session-{self.sessions}"
        commands = [schema.AvailableCommand(name="hello", description="Says hello — ¡hola!")]
        update = schema.AvailableCommandsUpdate(
            session_update="available_commands_update", available_commands=commands
        )
        await self.client.session_update(session_id, update)  # before the answer, as vibe does
        declared = [server.model_dump(by_alias=True, exclude_none=True) for server in mcp_servers]
        meta = {"cwd": cwd, "mcpServers": declared}
        return acp.NewSessionResponse(session_id=session_id, field_meta=meta)

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled[session_id].set()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "vendor/echo":
            return {"echo": params}
        raise acp.RequestError.method_not_found(f"_{method}")

    async def prompt(self, session_id: str, prompt: list[Any], **meta: Any) -> acp.PromptResponse:
        self.cancelled[session_id] = asyncio.Event()
        text = "".join(block.text for block in prompt if block.type == "text")
        command, *arguments = re.sub(r"^(\[.*?\])+", "", text).split()

        async def update(value: Any) -> None:
            await self.client.session_update(session_id, value)

        await update(acp.update_agent_message_text(f"you said: {text}"))
        match command:
            case "hello":
                await update(acp.update_agent_thought_text("\u2028 thinking \U0001f914 \x00"))
                await update(acp.update_plan([acp.plan_entry("greet", status="completed")]))
                await update(acp.update_agent_message_text("Hello!"))
            case "permission":
                await self.use_tool(session_id, update)
            case "read":
                file = await self.client.read_text_file(session_id, arguments[0], line=2, limit=1)
                await update(acp.update_agent_message_text(file.content))
            case "big":
                await update(acp.update_agent_message_text("\u00e9" * (int(arguments[0]) // 2)))
            case "ask":
                reply = await self.client.ext_method("vendor/ask", {"question": "why?"})
                await update(acp.update_agent_message_text(json.dumps(reply)))
            case "wait":
                await self.cancelled[session_id].wait()
                return acp.PromptResponse(stop_reason="cancelled", field_meta=meta)
        return acp.PromptResponse(stop_reason="end_turn", field_meta=meta)

    async def use_tool(self, session_id: str, update: Any) -> None:
        call = acp.start_tool_call(
            "call-1", "Edit config", kind="edit", status="pending", raw_input={"n": 2**53 - 1}
        )
        await update(call)
        question = schema.ToolCallUpdate(tool_call_id="call-1", title="Edit config")
        answer = await self.client.request_permission(session_id, question, OPTIONS)
        outcome = answer.outcome.model_dump(by_alias=True, exclude_none=True)
        done = acp.update_tool_call("call-1", status="completed", raw_output=outcome)
        await update(done)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))
