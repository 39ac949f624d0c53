"""`recorder`: each session as a Markdown file. `/recording` shows its path.

- use: ./recorder.py:Recorder
  with:
    directory: ~/recordings
"""

from pathlib import Path
from urllib.parse import quote

import attrs
import trio

from conductor.proxy import (
    Proxy,
    on_prompt,
    on_session,
    on_text,
    on_tool_end,
    on_turn_end,
    per_session,
    slash,
)


@attrs.define
class Recorder(Proxy):
    """Write each session to a file."""

    on_error = "pass"

    directory: Path

    said = per_session(list)
    """What is not written yet: the text of the agent since the last tool call or turn."""

    @on_session
    async def opened(self, session):
        client = session.client_info.get("name", "a client")
        self.said[session.id].append(f"# {session.opened_by}: {session.cwd}, with {client}\n\n")

    @on_prompt
    async def prompt(self, session, prompt, forward):
        await self.write(session, f"## {prompt.text}")
        return await forward()

    @on_text
    async def text(self, session, text):
        self.said[session.id].append(text)

    @on_tool_end
    async def tool(self, session, call):
        await self.write(session, f"- {call.kind}: {call.title} ({call.status})")

    @on_turn_end
    async def turn(self, session, end):
        tokens = end.usage.get("totalTokens", "unknown")
        await self.write(session, f"*{end.stop_reason or end.error}; tokens: {tokens}*")

    @slash("recording", "Show where this session is recorded")
    async def show(self, session, arguments):
        return str(self.path(session))

    def path(self, session):
        return self.directory / f"{quote(session.id, safe='')}.md"

    async def write(self, session, line):
        said = "".join(self.said.pop(session.id, ()))
        await trio.Path(self.directory).mkdir(parents=True, exist_ok=True)
        async with await trio.open_file(self.path(session), "a") as file:
            await file.write(f"{said.rstrip()}\n\n{line}\n\n".lstrip())
