"""Events: handlers for what happens in a session, the same in protocol versions 1 and 2.

    class Notes(Proxy):
        @on_prompt
        async def add_date(self, session, prompt, forward):
            prompt.prepend(f"Today is {date.today()}.")
            return await forward()

        @slash("notes", "Show the notes of this session")
        async def show(self, session, arguments):
            return "\\n".join(self.notes[session.id])

    @on_session_setup              (self, setup, forward)      a request that sets up a session
    @on_session                    (self, session)             its set-up was answered
    @on_session_end                (self, session)             closed, deleted, end of the chain
    @on_prompt                     (self, session, prompt, forward)      no slash command
    @on_update("kind", …)          (self, session, update, forward)      updates of these kinds
    @on_text                       (self, session, text)       streamed text; returns a replacement
    @text_filter                   (self, session)             returns the filter of a streamed text
    @on_tool_start, @on_tool_end   (self, session, call)       a tool call starts, has ended
    @on_permission                 (self, session, asked, forward)       a permission request
    @on_question                   (self, session, question, forward)    an elicitation
    @on_cancel                     (self, session)             the user cancels the session's turn
    @on_turn_end                   (self, session, end)        once per turn
    @on_mcp("tools/call", …)       (self, server, params, forward)       MCP requests over ACP
    @slash("name", "description")  (self, session, arguments)  a slash command; returns the answer

Handlers with `forward` decide about the message: one that does not call it drops or answers it.
The others observe: an exception in them is shown, and the message goes on. Several handlers of one
event run in the order of the class and its bases (the method resolution order).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, overload

import attrs

from conductor.proxy.annotations import DeclarationError
from conductor.schema.methods import UPDATE_KINDS

__all__ = [
    "EVENTS",
    "EventMark",
    "event_marks",
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
    "slash",
    "text_filter",
]

F = TypeVar("F", bound=Callable[..., Any])
TextRole = Literal["agent", "thought", "user"]

EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_session_setup": ("setup", "forward"),
    "on_session": ("session",),
    "on_session_end": ("session",),
    "on_prompt": ("session", "prompt", "forward"),
    "on_update": ("session", "update", "forward"),
    "on_text": ("session", "text"),
    "text_filter": ("session",),
    "on_tool_start": ("session", "call"),
    "on_tool_end": ("session", "call"),
    "on_permission": ("session", "asked", "forward"),
    "on_question": ("session", "question", "forward"),
    "on_cancel": ("session",),
    "on_turn_end": ("session", "end"),
    "on_mcp": ("server", "params", "forward"),
    "slash": ("session", "arguments"),
}
"""Parameters of the handler of each event, after `self`."""

_ARGUMENT_TYPES: Final = {
    "session": "Session",
    "setup": "SessionSetup",
    "prompt": "Prompt",
    "call": "AgentToolCall",
    "asked": "PermissionQuestion",
    "question": "Question",
    "end": "TurnEnd",
}
_BUILTIN: Final = re.compile(r"(str|bytes|int|float|bool|dict|list|tuple)\b")
_MARK: Final = "__acp_events__"


@attrs.frozen
class EventMark:
    """One event that a method handles."""

    event: str
    """A name in `EVENTS`."""
    kinds: tuple[str, ...] = ()
    """Kinds for `on_update`, roles for `on_text`, MCP methods for `on_mcp`."""
    name: str | Callable[[Any], str] = ""
    """Name of a slash command, or a function of the plugin that returns it."""
    description: str = ""

    def name_for(self, plugin: Any) -> str:
        """The name of the slash command of this plugin."""
        return self.name if isinstance(self.name, str) else self.name(plugin)


def _mark(function: F, mark: EventMark) -> F:
    what, wanted = f"@{mark.event}", EVENTS[mark.event]
    is_async = mark.event != "text_filter"
    shown = getattr(function, "__qualname__", repr(function))
    if inspect.iscoroutinefunction(function) != is_async:
        must = "be `async def`" if is_async else "be `def`, without `async`"
        raise DeclarationError(f"{what}: {shown} must {must}")
    parameters = list(inspect.signature(function).parameters.values())[1:]
    names = tuple(parameter.name for parameter in parameters)
    misplaced = any(
        name in wanted and wanted.index(name) != place for place, name in enumerate(names)
    )
    if len(names) != len(wanted) or misplaced:
        define = "async def" if is_async else "def"
        raise DeclarationError(
            f"{what}: {shown} takes ({', '.join(names)}); write "
            f"`{define} {function.__name__}(self, {', '.join(wanted)})`"
        )
    for parameter, name in zip(parameters, wanted, strict=True):
        annotation = parameter.annotation
        given = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if name in _ARGUMENT_TYPES and _BUILTIN.match(given):
            kind = _ARGUMENT_TYPES[name]
            raise DeclarationError(
                f"{what}: {shown} gets a `{kind}` as `{parameter.name}`, no `{given}`: write "
                f"`{parameter.name}: {kind}` (`from conductor.proxy import {kind}`)"
            )
    setattr(function, _MARK, (*getattr(function, _MARK, ()), mark))
    return function


def event_marks(function: Any) -> tuple[EventMark, ...]:
    """The events that a method handles."""
    marks: tuple[EventMark, ...] = getattr(function, _MARK, ())
    return marks


def on_session_setup(function: F, /) -> F:
    """Call the method for `session/new`, `load`, `resume` and `fork`, before the agent gets it.

    `setup` is a `SessionSetup`. `await forward()` sends the request on, changed or not, and returns
    its result, which the method returns.
    """
    return _mark(function, EventMark("on_session_setup"))


def on_session(function: F, /) -> F:
    """Call the method after `session/new`, `load`, `resume` or `fork` was answered.

    The client has the response. Messages of the agent that follow wait until the method returns;
    those of the client do not: what its prompts need is set before the first `await`.
    """
    return _mark(function, EventMark("on_session"))


def on_session_end(function: F, /) -> F:
    """Call the method when the session was closed or deleted, or when the chain ends."""
    return _mark(function, EventMark("on_session_end"))


def on_prompt(function: F, /) -> F:
    """Call the method for a prompt of the user that is not a slash command of a proxy.

    `prompt` is a `Prompt`. `await forward()` sends it to the agent, changed or not, and returns the
    result of `session/prompt`, which the method returns; `return await prompt.answer("…")` answers
    it without the agent.
    """
    return _mark(function, EventMark("on_prompt"))


def on_update(*kinds: str) -> Callable[[F], F]:
    """Call the method for `session/update` notifications of these kinds.

    `update` is the `update` member as a `dict`. `await forward()` sends it on, changed or not; a
    method that does not call it drops the update. Updates of other kinds are not decoded.
    """
    if not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise DeclarationError('write @on_update("<kind>"), for example @on_update("plan")')
    for kind in kinds:
        if kind in UPDATE_KINDS or kind.startswith("_"):
            continue
        import difflib

        for meant in difflib.get_close_matches(kind, sorted(UPDATE_KINDS), n=1, cutoff=0.85):
            raise DeclarationError(
                f"@on_update: no update is of the kind {kind!r}; did you mean {meant!r}?"
            )
    return lambda function: _mark(function, EventMark("on_update", kinds))


@overload
def on_text(function: F, /) -> F: ...
@overload
def on_text(*roles: TextRole) -> Callable[[F], F]: ...
def on_text(*given: Any) -> Any:
    """Call the method for each piece of streamed text; it may return a replacement.

    `@on_text` is for the text of the agent; `@on_text("agent", "thought", "user")` also for its
    thoughts and for the echoed text of the user. `None` leaves the piece as it is.
    """
    if len(given) == 1 and callable(given[0]):
        return _mark(given[0], EventMark("on_text", ("agent",)))
    roles = _roles("on_text", given)
    return lambda function: _mark(function, EventMark("on_text", roles))


def text_filter(*roles: TextRole) -> Callable[[F], F]:
    """Pass streamed texts through filters that may hold back what they cannot decide about yet.

        @text_filter("agent", "thought")
        def without_secrets(self, session):
            return SecretFilter()

    The method, which is not async, is called when a text of the session begins. It returns a
    `TextFilter`: `feed(text)` returns what can be shown after a piece, `end()` what was held back;
    both may be async. What is held back is sent when the text ends, before what ends it: another
    update, the end of the turn, a request that the user sees.
    """
    given = _roles("text_filter", roles)
    return lambda function: _mark(function, EventMark("text_filter", given))


def _roles(event: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    if not given or any(role not in ("agent", "thought", "user") for role in given):
        raise DeclarationError(f'@{event}: roles are "agent", "thought" and "user"')
    return given


def on_tool_start(function: F, /) -> F:
    """Call the method once per tool call, when its input is known; `call` is an `AgentToolCall`.

    Agents announce calls before their input is there. Such a call starts with the update that
    brings the input, when it runs, when a permission for it is asked, or when it ends.
    """
    return _mark(function, EventMark("on_tool_start"))


def on_tool_end(function: F, /) -> F:
    """Call the method when a tool call is completed, failed or cancelled; once per call.

    A call that the agent leaves unfinished ends with its turn: failed, or cancelled in version 2.
    """
    return _mark(function, EventMark("on_tool_end"))


def on_permission(function: F, /) -> F:
    """Call the method for a permission request; `asked` is a `PermissionQuestion`.

    `return await forward()` lets the next component answer; `return asked.allow()` and
    `return asked.deny()` answer. `asked.tool` is the canonical name of the tool, or `None`.
    """
    return _mark(function, EventMark("on_permission"))


def on_question(function: F, /) -> F:
    """Call the method for an elicitation, a question of the agent to the user.

    `question` is a `Question`; `session` is `None` if it belongs to no session.
    """
    return _mark(function, EventMark("on_question"))


def on_cancel(function: F, /) -> F:
    """Call the method when the client cancels the running turn, before the agent learns of it."""
    return _mark(function, EventMark("on_cancel"))


def on_turn_end(function: F, /) -> F:
    """Call the method once at the end of each turn, before the client learns of it; `end` is a
    `TurnEnd`."""
    return _mark(function, EventMark("on_turn_end"))


def on_mcp(*methods: str) -> Callable[[F], F]:
    """Call the method for requests of the agent to MCP servers over ACP, of these MCP methods.

        @on_mcp("tools/call")
        async def no_deletion(self, server, params, forward):
            if params["name"].startswith("delete_"):
                raise RequestError(-32602, f"Unknown tool: {params['name']}")
            return await forward()

    `server` is the name of the MCP server, empty if it is not known; `params` are those of the MCP
    request. `await forward()` sends it on, changed or not, and returns the result of the server or
    raises its error. MCP servers over ACP are those of proxies and of the client; messages of
    servers that the agent starts or connects to by itself do not pass through the chain.
    """
    if not methods or not all(isinstance(method, str) for method in methods):
        raise DeclarationError('write @on_mcp("<MCP method>"), for example @on_mcp("tools/call")')
    return lambda function: _mark(function, EventMark("on_mcp", methods))


def slash(name: str | Callable[[Any], str], description: str = "") -> Callable[[F], F]:
    """Call the method for the slash command `/name` and show what it returns to the user.

    The command is announced in every session. `arguments` is the text after the command. `name` may
    be a function of the proxy that returns the name, for a name that is an option. If the agent has
    a command of that name, this one is called `acp:name`. The description is what clients show of
    the command, and must not be empty.
    """
    if not callable(name) and (not isinstance(name, str) or not name or not name.isprintable()):
        raise DeclarationError('write @slash("<name>", "<description>")')
    if not isinstance(description, str) or not description:
        shown = f"({name!r})" if isinstance(name, str) else ""
        raise DeclarationError(
            f'@slash{shown} has no description: write @slash("<name>", "<description>")'
        )
    if isinstance(name, str) and (name.startswith("/") or any(c.isspace() for c in name)):
        raise DeclarationError(f"@slash({name!r}): the name has no slash and no white space")
    return lambda function: _mark(function, EventMark("slash", (), name, description))
