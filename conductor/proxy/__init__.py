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

Lanes: the order in which handlers run
--------------------------------------

1. A plugin has two lanes, one toward the agent and one toward the client. A response is in the lane
   of the direction in which it travels. A lane delivers one message at a time, in arrival order.
   Messages without a handler keep their place in it.
2. A handler holds its lane until it ends or *starts waiting for a response* (`await
   forward(request)`, `await self.agent.request(…)`); the request is written before the lane
   continues. So waiting never deadlocks.
3. When the response arrives, the handler holds the lane of the response. At this moment, every
   message that was sent before the response has been handled, and no later one has been started. A
   handler that waits for several responses at once holds the lane of the last.
4. Awaiting anything else keeps the lane, which preserves the order; `self.release_lane()` lets the
   next message in; `self.start_soon(fn, *args)` runs a function outside the lanes. A lane that is
   held for more than 5 s is logged with the handler's file:line.
5. `forward(notification)` returns when the notification is queued at the next hop; a handler that
   does not call it drops the notification. `forward(request)` returns the result or raises
   `RequestError`; a handler that does not call it answers the request itself; calling it twice
   sends the request twice.
6. `$/cancel_request` never waits in a lane. A request that is still queued for a handler is
   answered -32800 at once; one without a handler goes on, with its cancellation after it. If the
   handler waits for a response, the forwarded request is cancelled, and the handler still gets
   the real response. If it waits for anything else, the handler is cancelled and the request is
   answered -32800.
7. An exception other than `RequestError` is logged with proxy, method and session, and told to
   the user, once per turn and handler. With `on_error = "fail"`, the default, because a broken
   redactor must not let secrets through, a request is answered -32603 and a notification is
   dropped. With `on_error = "pass"`, for proxies
   that only observe, the message is forwarded unchanged; if the handler had forwarded it already,
   it is not sent again, and a request gets the response that has come. The lane continues.

Lanes belong to a hop, not to a session: order is also kept across sessions, because clients and
agents rely on it (a session's first update follows the response to `session/new`; `session/list`
and `session/close` concern other sessions). A handler that waits long for anything other than a
response calls `self.release_lane()` first, and then delays no other message.
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
