"""A client written on the official Python SDK; ts_client.mjs is its twin.

    py_client.py [--nothing-big] AGENT ARG… | URL

It starts the agent as the SDK does (a nearly empty environment, stdin closed at the end), has one
session with it and prints what came of it as one line of JSON: the answers to `initialize` and
`session/new`, the events in the order in which the SDK delivered them, and the exit status.

--nothing-big is for HTTP: `acp._sse` decodes each piece that the network brings by itself, and
fails where one ends within a character.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp import schema

PATIENCE = 60.0  # the SDK kills an agent that has not left by then
LONGEST_LINE = 64 * 1024 * 1024
META = {"traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01"}
PROMPTS = ["hello", "permission", "read {cwd}/notes.txt", "big 300000", "ask", "wait"]


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Client:
    agent: acp.Agent

    def __init__(self) -> None:
        self.events: list[list[Any]] = []

    def on_connect(self, conn: acp.Agent) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **meta: Any) -> None:
        self.events.append(["update", session_id, dump(update)])
        if getattr(update, "content", None) and dump(update.content).get("text", "").endswith(
            "wait"
        ):
            await self.agent.cancel(session_id)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        question = [dump(tool_call), [dump(option) for option in options]]
        self.events.append(["permission", session_id, *question])
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return acp.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> acp.ReadTextFileResponse:
        self.events.append(["read", session_id, path, line, limit])
        return acp.ReadTextFileResponse(content='line two: \t"quoted" \\ \u2603 \U0001f600\r\n')

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.events.append(["asked", f"_{method}", params])
        return {"answer": 42, "nothing": None}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.events.append(["told", f"_{method}", params])


@asynccontextmanager
async def reach(client: Client, command: list[str]) -> AsyncIterator[tuple[acp.Agent, Any]]:
    """The agent, and its process if it has one."""
    if command[0].startswith("http"):
        from acp.http import create_http_stream

        transport = create_http_stream(command[0])
    elif command[0].startswith("ws"):
        from acp.ws import create_websocket_stream

        transport = await create_websocket_stream(command[0])
    else:
        options = {"stderr": None, "limit": LONGEST_LINE, "shutdown_timeout": PATIENCE}
        async with acp.spawn_agent_process(client, *command, transport_kwargs=options) as pair:
            yield pair
        return
    async with acp.connect_to_agent(client, transport) as agent:
        yield agent, None


async def main(command: list[str]) -> dict[str, Any]:
    client, summary, cwd = Client(), dict[str, Any](), str(Path.cwd())
    nothing_big = command[0] == "--nothing-big"
    if nothing_big:
        command = command[1:]
    async with reach(client, command) as (agent, process):
        capabilities = schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=False)
        )
        info = schema.Implementation(name="py-client", version="1.0")
        summary["initialize"] = dump(await agent.initialize(1, capabilities, info))
        env = [schema.EnvVariable(name="KEY", value="a=b c")]
        server = schema.McpServerStdio(name="notes", command="/bin/notes", args=["-v"], env=env)
        session = await agent.new_session(cwd, mcp_servers=[server])
        summary["session"] = dump(session)
        for prompt in PROMPTS:
            if nothing_big and prompt.startswith("big"):
                continue
            blocks = [acp.text_block(prompt.format(cwd=cwd))]
            answer = await agent.prompt(session.session_id, blocks, **META)
            client.events.append(["answer", dump(answer)])
        client.events.append(["result", await agent.ext_method("vendor/echo", {"n": [1, None]})])
        try:
            await agent.ext_method("vendor/missing", {})
        except acp.RequestError as error:
            client.events.append(["error", error.to_error_obj()])
    return summary | {"events": client.events, "exit": process.returncode if process else 0}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1:]))))
