"""`translate`: the user and the agent write in different languages.

Two commands translate from stdin to stdout, such as `trans -b :en` and `trans -b :de`. The agent's
text is translated line by line. `/translate off` and `/translate on` switch.

- use: ./translate.py:Translate
  with:
    to_agent: [trans, -b, ":en"]
    to_user: [trans, -b, ":de"]
"""

import attrs
import trio

from conductor.proxy import Proxy, on_prompt, per_session, slash, text_filter


@attrs.define
class Translate(Proxy):
    """Translate prompts for the agent, and its answers for the user."""

    to_agent: list[str]
    to_user: list[str]

    is_off = per_session(bool)

    @on_prompt
    async def prompt(self, session, prompt, forward):
        if not (self.is_off[session.id] or prompt.is_command):
            for block in prompt.blocks:
                if block["type"] == "text":
                    block["text"] = await _translate(self.to_agent, block["text"])
        return await forward()

    @text_filter("agent")
    def answer(self, session):
        return _Lines(None if self.is_off[session.id] else self.to_user)

    @slash("translate", "Translate prompts and answers: on or off")
    async def switch(self, session, arguments):
        if arguments in ("on", "off"):
            self.is_off[session.id] = arguments == "off"
        return "Translation is " + ("off." if self.is_off[session.id] else "on.")


@attrs.define
class _Lines:
    """Translates one text. A line that has not ended is held back."""

    command: list[str] | None
    rest: str = ""

    async def feed(self, text):
        if self.command is None:
            return text
        lines, end, self.rest = (self.rest + text).rpartition("\n")
        return await _translate(self.command, lines + end) if end else ""

    async def end(self):
        return await _translate(self.command, self.rest) if self.rest else ""


async def _translate(command, text):
    done = await trio.run_process(command, stdin=text.encode(), capture_stdout=True)
    return done.stdout.decode()
