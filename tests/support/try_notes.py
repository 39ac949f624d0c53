"""A proxy in a file, for `acp-conductor try`."""

from __future__ import annotations

HEAD = "import attrs\nfrom conductor.proxy import *\n\n\n"


NOTES = '''@attrs.define
class Notes(Proxy):
    """Notes."""

    note: str = "Be kind."

    @on_prompt
    async def add_note(self, session, prompt, forward):
        prompt.prepend(self.note)
        return await forward()

    @on_text
    async def shout(self, session, text):
        return text.upper()

    @on_update("available_commands_update")
    async def hide(self, session, update, forward):
        pass

    @on_permission
    async def ask(self, session, asked, forward):
        return asked.deny()

    @on_turn_end
    async def count(self, session, end):
        await session.say("that was it")
'''
