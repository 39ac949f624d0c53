"""`translate`: the user and the agent write in different languages.

Two commands translate from stdin to stdout, such as `trans -b :en` and `trans -b :de`. The agent's
text is translated line by line, what remains before each tool call and at the end of a turn.
`/translate off` and `/translate on` switch.

- use: ./translate.py:Translate
  with:
    to_agent: [trans, -b, ":en"]
    to_user: [trans, -b, ":de"]
"""

import attrs
import trio

from conductor.proxy import (
    Proxy,
    on_prompt,
    on_session,
    on_text,
    on_tool_start,
    on_turn_end,
    per_session,
    slash,
)


@attrs.define
class _State:
    enabled: bool = True
    rest: str = ""
    """The beginning of a line of the agent, not shown yet."""


@attrs.define
class Translate(Proxy):
    """Translate prompts for the agent, and its answers for the user."""

    to_agent: list[str]
    to_user: list[str]

    states = per_session(_State)

    @on_prompt
    async def prompt(self, session, prompt, forward):
        if self.states[session.id].enabled:
            for block in prompt.blocks:
                if block["type"] == "text":
                    block["text"] = await _translate(self.to_agent, block["text"])
        return await forward()

    @on_text
    async def answer(self, session, text):
        state = self.states[session.id]
        if not state.enabled:
            return text
        lines, end, state.rest = (state.rest + text).rpartition("\n")
        return await _translate(self.to_user, lines + end) if end else ""

    @on_tool_start
    async def tool_starts(self, session, call):
        await self.show_rest(session)

    @on_turn_end
    async def turn_ends(self, session, end):
        await self.show_rest(session)

    @on_session
    async def replay_ends(self, session):
        await self.show_rest(session)

    @slash("translate", "Translate prompts and answers: on or off")
    async def switch(self, session, arguments):
        if arguments in ("on", "off"):
            self.states[session.id].enabled = arguments == "on"
        return "Translation is " + ("on." if self.states[session.id].enabled else "off.")

    async def show_rest(self, session):
        state = self.states[session.id]
        if state.rest:
            rest, state.rest = state.rest, ""
            await session.say(await _translate(self.to_user, rest))


async def _translate(command: list[str], text: str) -> str:
    done = await trio.run_process(command, stdin=text.encode(), capture_stdout=True)
    return done.stdout.decode()
