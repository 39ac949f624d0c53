"""The proxy author's API.

    @attrs.define
    class AddContext(Proxy):
        '''Put a fixed text before every prompt.'''
        context: str

        @on_prompt
        async def add_context(self, session, prompt, forward):
            prompt.prepend(self.context)
            return await forward()

A class like this runs in the conductor's process (`use:`), in a process of its own
(`isolate: true`), or as a program under any conductor (`run(AddContext)`). Its options are its
fields. The annotation of a handler's message parameter selects how the message is given: a schema
type, `dict` (also without an annotation), or `bytes`, which is the raw JSON of `params`.

Main names: `Proxy` and `Agent` (base classes), `on` (marks handlers), `tool` (marks what the
agent's model can call), `per_session` (state per session), `RawMessage` (what an observer of all
messages gets). What fewer proxies need is in `proxy.peers` (the types of `self.agent` and
`self.client`), `proxy.second_agent`, `proxy.commands`, `conductor.errors` and other modules, which
the API reference lists.
`run()` starts the program `conductor.standalone`.

A plugin has two lanes, one toward the agent and one toward the client, in which handlers run one at
a time. The rules of their order are in docs/ordering.md; "lane rule N" refers to it.
"""

from __future__ import annotations

from conductor.acp.sessions import AgentToolCall
from conductor.errors import RequestCancelled, RequestError
from conductor.log import get_logger
from conductor.proxy.annotations import Forward, RawMessage
from conductor.proxy.base import Agent, Placement, Plugin, Proxy
from conductor.proxy.event_handlers import PermissionQuestion, Prompt, Question, SessionSetup
from conductor.proxy.events import (
    on_cancel,
    on_mcp,
    on_permission,
    on_prompt,
    on_question,
    on_session,
    on_session_end,
    on_session_setup,
    on_text,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    on_update,
    slash,
    text_filter,
)
from conductor.proxy.handlers import on
from conductor.proxy.import_guard import is_importing_plugin
from conductor.proxy.peers import text
from conductor.proxy.sessions import Session, TurnEnd, per_session
from conductor.proxy.tools import Context, tool

__all__ = [
    "Agent",
    "AgentToolCall",
    "Context",
    "Forward",
    "PermissionQuestion",
    "Placement",
    "Prompt",
    "Proxy",
    "Question",
    "RawMessage",
    "RequestCancelled",
    "RequestError",
    "Session",
    "SessionSetup",
    "TurnEnd",
    "get_logger",
    "on",
    "on_cancel",
    "on_mcp",
    "on_permission",
    "on_prompt",
    "on_question",
    "on_session",
    "on_session_end",
    "on_session_setup",
    "on_text",
    "on_tool_end",
    "on_tool_start",
    "on_turn_end",
    "on_update",
    "per_session",
    "run",
    "slash",
    "text",
    "text_filter",
    "tool",
]


def run(plugin: type[Plugin], /) -> None:
    """Run `plugin` as a stand-alone program on stdin and stdout, under any conductor.

    Options come from the environment variable `ACP_PROXY_OPTIONS` (a JSON object), which is erased
    for this process and those that it starts, and from arguments `--option value`, which take
    precedence. Does not return, except in a module that is
    imported as a plugin (`use: ./file.py:Class`): there it does nothing.
    """

    if is_importing_plugin():
        return
    from conductor.standalone import run_plugin

    run_plugin(plugin)
