"""Events as layers of the wire methods that carry them, in both versions of the protocol.

`event_layers` returns, for a plugin class, the layers of its event handlers by method, and those
that keep `Session` objects up to date. Order within a method: what keeps the state comes first for
updates, so that handlers see the state after the update, and last for requests, so that it sees the
response first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import attrs

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS, session_id_of
from conductor.errors import RequestError
from conductor.log import get_logger
from conductor.proxy.events import EventMark, event_marks
from conductor.proxy.middleware import Body, Layer, Next, handler_layer
from conductor.proxy.questions import PermissionQuestion, Prompt, Question
from conductor.proxy.session_state import per_session
from conductor.proxy.sessions import (
    AgentToolCall,
    Session,
    TurnEnd,
    chain_info,
    session_of,
    turn_end,
)
from conductor.proxy.slash_commands import SlashCommand, answer, is_handled
from conductor.proxy.update_kinds import update_filter

__all__ = ["EventLayers", "end_sessions", "event_layers", "keep_sessions", "location_of"]

_TOOL_KINDS: Final = frozenset({"tool_call", "tool_call_update", "tool_call_content_chunk"})
_STATE_KINDS: Final = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "state_update",
        "subagent_update",
    }
)
_TEXT_KINDS: Final = {
    "agent": ("agent_message_chunk",),
    "thought": ("agent_thought_chunk",),
    "user": ("user_message_chunk",),
}

log = get_logger()

_Function = Callable[..., Awaitable[Any]]


@attrs.define
class EventLayers:
    """The layers of a plugin class, by method. Those of the author's handlers are placed between
    `before` and `after`."""

    before: Mapping[str, Sequence[Layer]]
    authors: Mapping[str, Sequence[tuple[int, Layer]]]
    """With the position of the handler in the class and its bases."""
    after: Mapping[str, Sequence[Layer]]
    session_end: Sequence[_Function]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys([*self.before, *self.authors, *self.after]))

    def around(self, method: str, handlers: Sequence[tuple[int, Any]]) -> list[Layer]:
        """All layers of a method, those of its `@on` handlers included, which are given with their
        positions; empty if there is no layer of an event."""
        if method not in self.methods:
            return []
        placed = [(position, handler_layer(handler)) for position, handler in handlers]
        placed.extend(self.authors.get(method, ()))
        placed.sort(key=itemgetter(0))
        authors = [layer for _, layer in placed]
        return [*self.before.get(method, ()), *authors, *self.after.get(method, ())]


def event_layers(members: Iterable[tuple[int, Any]]) -> EventLayers | None:
    """The layers of these methods, given with their positions; `None` if none handles events."""
    marked = [
        (position, function, mark)
        for position, function in members
        for mark in event_marks(function)
    ]
    if not marked:
        return None
    by_event: dict[str, list[_Function]] = defaultdict(list)
    authors: dict[str, list[tuple[int, Layer]]] = defaultdict(list)
    commands: list[tuple[EventMark, _Function]] = []
    for position, function, mark in marked:
        by_event[mark.event].append(function)
        if mark.event == "slash":
            commands.append((mark, function))
        for method, layer in _author_layers(function, mark):
            authors[method].append((position, layer))
    before = {
        "session/prompt": [Layer(partial(_answer_command, commands))],
        "session/update": [_tracking_layer(by_event)],
    }
    after: dict[str, list[Layer]] = {
        "initialize": [Layer(partial(_initialize, commands))],
        "session/prompt": [Layer(partial(_run_turn, by_event["on_turn_end"]))],
        "session/cancel": [Layer(_cancel)],
        "session/set_mode": [Layer(_set_mode)],
        "session/set_config_option": [Layer(_set_config_option)],
    }
    for method in SESSION_SETUP_METHODS:
        after[method] = [Layer(partial(_set_up, method, by_event["on_session"]))]
    for method in SESSION_END_METHODS:
        after[method] = [Layer(partial(_end, by_event["on_session_end"]))]
    return EventLayers(before, authors, after, by_event["on_session_end"])


def keep_sessions(cls: type, events: EventLayers) -> None:
    """Give a plugin class the attributes that its events need."""
    sessions = per_session(Session)
    sessions.__set_name__(cls, "_acp_session_objects")
    cls._acp_session_objects = sessions  # type: ignore[attr-defined]
    cls._acp_session_end = tuple(events.session_end)  # type: ignore[attr-defined]


async def end_sessions(plugin: Any) -> None:
    """Call `on_session_end` for the open sessions: the chain ends."""
    functions = getattr(type(plugin), "_acp_session_end", ())
    if functions:
        for session in list(plugin._acp_session_objects.values()):
            if session.opened_by is not None:
                await _observe(functions, plugin, session)


def location_of(function: Any) -> str:
    """`file:line` of a function."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


# ---- the author's handlers -----------------------------------------------------------------------


def _author_layers(function: _Function, mark: EventMark) -> Iterable[tuple[str, Layer]]:
    location = location_of(function)
    match mark.event:
        case "on_prompt":
            yield "session/prompt", Layer(partial(_prompt, function), location)
        case "on_permission":
            yield "session/request_permission", Layer(partial(_permission, function), location)
        case "on_question":
            yield "elicitation/create", Layer(partial(_question, function), location)
        case "on_update":
            handle = partial(_update, function, frozenset(mark.kinds))
            yield "session/update", Layer(handle, location, update_filter(mark.kinds))
        case "on_text":
            kinds = [kind for role in mark.kinds for kind in _TEXT_KINDS[role]]
            handle = partial(_text, function, frozenset(kinds))
            yield "session/update", Layer(handle, location, update_filter(kinds))


async def _prompt(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    if body.is_command:
        return await call_next(body)
    params = body.decode()
    session = session_of(plugin, params["sessionId"])

    async def answer_prompt(text: str, stop_reason: str) -> dict[str, Any]:
        return await answer(
            plugin.client,
            session.id,
            prompt.blocks,
            text,
            version=session.protocol_version,
            stop_reason=stop_reason,
        )

    prompt = Prompt(params["prompt"], answer_prompt)

    async def forward(changed: Prompt | None = None) -> Any:
        blocks = prompt.blocks if changed is None else changed.blocks
        return (await call_next(body.edited({**params, "prompt": blocks}))).decode()

    return Body.of(await function(plugin, session, prompt, forward))


async def _permission(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    session = session_of(plugin, params["sessionId"])
    told = params.get("toolCall")
    if told is None and isinstance(subject := params.get("subject"), dict):
        told = subject.get("toolCall")
    call = None
    if isinstance(told, dict):
        id = str(told.get("toolCallId", ""))
        known = session.tool_calls.get(id)
        call = AgentToolCall(id, dict(known.members) if known is not None else {})
        call.merge(told)
    options = [each for each in params.get("options") or () if isinstance(each, dict)]
    asked = PermissionQuestion(call, options, params)

    async def forward(changed: Mapping[str, Any] | None = None) -> Any:
        return (await call_next(body.edited(params if changed is None else changed))).decode()

    return Body.of(await function(plugin, session, asked, forward))


async def _question(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    id = params.get("sessionId")
    session = session_of(plugin, id) if isinstance(id, str) else None

    async def forward(changed: Mapping[str, Any] | None = None) -> Any:
        return (await call_next(body.edited(params if changed is None else changed))).decode()

    question = Question(str(params.get("message", "")), params)
    return Body.of(await function(plugin, session, question, forward))


async def _update(
    function: _Function, kinds: frozenset[str], plugin: Any, body: Body, call_next: Next
) -> Body:
    params = body.decode()
    update = params.get("update")
    if not isinstance(update, dict) or update.get("sessionUpdate") not in kinds:
        return await call_next(body)

    async def forward(changed: Mapping[str, Any] | None = None) -> None:
        shown = update if changed is None else changed
        await call_next(body.edited({**params, "update": shown}))

    await function(plugin, session_of(plugin, params["sessionId"]), update, forward)
    return body


async def _text(
    function: _Function, kinds: frozenset[str], plugin: Any, body: Body, call_next: Next
) -> Body:
    params = body.value
    update = params.get("update")
    if not isinstance(update, dict) or update.get("sessionUpdate") not in kinds:
        return await call_next(body)
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(text, str):
        return await call_next(body)
    shown = await function(plugin, session_of(plugin, params["sessionId"]), text)
    if shown is None or shown == text:
        return await call_next(body)
    changed = {**params, "update": {**update, "content": {**content, "text": shown}}}
    return await call_next(Body.of(changed))


async def _observe(functions: Sequence[_Function], *args: Any) -> None:
    """Call the handlers of an event that cannot change a message; a failure is logged."""
    for function in functions:
        try:
            await function(*args)
        except Exception as exc:
            name = type(args[0]).__name__
            log.error("handler failed", plugin=name, handler=location_of(function), exc_info=exc)


# ---- what keeps the sessions ---------------------------------------------------------------------


async def _initialize(
    commands: Sequence[tuple[EventMark, _Function]], plugin: Any, body: Body, call_next: Next
) -> Body:
    info = chain_info(plugin)
    info.commands.own = [
        SlashCommand(
            mark.name if isinstance(mark.name, str) else mark.name(plugin), mark.description
        )
        for mark, _ in commands
    ]
    answered = await call_next(body)
    result = answered.value
    with_commands = info.commands.initialized(result)
    return answered if with_commands is result else Body.of(with_commands)


async def _set_up(
    method: str, functions: Sequence[_Function], plugin: Any, body: Body, call_next: Next
) -> Body:
    params = body.value
    info = chain_info(plugin)
    id = params.get("sessionId")
    reopened = method in ("session/load", "session/resume") and isinstance(id, str)
    before: dict[str, Any] | None = None
    if reopened:  # the replay before the response may already ask for permission
        session = session_of(plugin, id)
        names = ("opened_by", "cwd", "additional_directories", "mcp_servers")
        before = {name: getattr(session, name) for name in names}
        session.set_up(method, params)
    try:
        answered = await call_next(body)
    except BaseException:
        if before is not None:
            for name, value in before.items():
                setattr(session, name, value)
        raise
    result = answered.value if isinstance(answered.value, dict) else {}
    opened = result.get("sessionId", id)
    if not isinstance(opened, str):
        return answered
    session = session_of(plugin, opened)
    session.set_up(method, params)
    session.opened(result)
    if info.protocol_version > 1 and isinstance(answered.value, dict):
        with_commands = info.commands.announced(result, session.commands)
        answered = answered if with_commands is result else Body.of(with_commands)
    announces = info.protocol_version == 1 and bool(info.commands.own)
    if functions or announces:
        plugin._acp_runtime.after_answer(_opened, functions, plugin, session)
    return answered


async def _opened(functions: Sequence[_Function], plugin: Any, session: Session) -> None:
    """After the answer to a set-up request: announce commands, call `on_session`."""
    commands = session.chain.commands
    if session.protocol_version == 1 and commands.own:
        listing = commands.listing(session.commands)
        await plugin.client.update(
            session.id, {"sessionUpdate": "available_commands_update", **listing}
        )
    await _observe(functions, plugin, session)


async def _end(functions: Sequence[_Function], plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    id = session_id_of(body.raw)
    if functions and id is not None and id in plugin._acp_session_objects:
        await _observe(functions, plugin, session_of(plugin, id))
    return answered


async def _answer_command(
    commands: Sequence[tuple[EventMark, _Function]], plugin: Any, body: Body, call_next: Next
) -> Body:
    """Answer a slash command of this proxy; mark that of another proxy."""
    id = session_id_of(body.raw)
    info = chain_info(plugin)
    session = session_of(plugin, id) if id is not None else None
    if id is None or session is None or not info.commands.may_call(body.raw, session.commands):
        return await call_next(body)
    prompt = body.value.get("prompt")
    if not isinstance(prompt, list):
        return await call_next(body)
    called = info.commands.called(prompt, session.commands)
    if called is None:
        body.is_command = info.commands.calls_other(prompt, session.commands)
        return await call_next(body)
    command, arguments = called
    function = commands[list(info.commands.own).index(command)][1]
    text = await function(plugin, session, arguments)
    version = info.protocol_version
    return Body.of(await answer(plugin.client, id, prompt, text or "", version=version))


async def _run_turn(
    functions: Sequence[_Function], plugin: Any, body: Body, call_next: Next
) -> Body:
    id = session_id_of(body.raw)
    if id is None or body.is_command:
        return await call_next(body)
    session = session_of(plugin, id)
    session.cancelled = False
    if session.protocol_version > 1:
        return await call_next(body)
    session.is_running = True
    try:
        answered = await call_next(body)
    except RequestError as exc:
        session.is_running = False
        await _observe(functions, plugin, session, TurnEnd(None, error=exc))
        raise
    session.is_running = False
    result = answered.value
    if isinstance(result, dict) and not is_handled(result):
        await _observe(functions, plugin, session, turn_end(result))
    return answered


async def _cancel(plugin: Any, body: Body, call_next: Next) -> Body:
    id = session_id_of(body.raw)
    if id is not None:
        session_of(plugin, id).cancelled = True
    return await call_next(body)


async def _set_mode(plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    mode, id = body.value.get("modeId"), body.value.get("sessionId")
    if isinstance(mode, str) and isinstance(id, str):
        session_of(plugin, id).mode = mode
    return answered


async def _set_config_option(plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    id = session_id_of(body.raw)
    if id is not None and isinstance(answered.value, dict):
        session_of(plugin, id).opened(answered.value)
    return answered


def _tracking_layer(by_event: Mapping[str, Sequence[_Function]]) -> Layer:
    """The layer that reads updates of state and of tool calls, and fires their events."""

    async def handle(plugin: Any, body: Body, call_next: Next) -> Body:
        params = body.value
        update, id = params.get("update"), params.get("sessionId")
        if not isinstance(update, dict) or not isinstance(id, str):
            return await call_next(body)
        session, kind = session_of(plugin, id), update.get("sessionUpdate")
        if kind in _TOOL_KINDS:
            call, starts, ends = session.update_tool_call(update)
            if starts:
                await _observe(by_event["on_tool_start"], plugin, session, call)
            if ends:
                await _observe(by_event["on_tool_end"], plugin, session, call)
        elif kind == "state_update":
            end = session.state_update(update)
            if end is not None:
                await _observe(by_event["on_turn_end"], plugin, session, end)
        elif kind == "available_commands_update":
            commands = session.chain.commands
            changed = commands.announced(update, session.commands)
            if changed is not update:
                body = Body.of({**params, "update": changed})
        elif kind == "subagent_update":
            child = update.get("sessionId")
            if isinstance(child, str):
                session_of(plugin, child).parent = session.id
        else:
            session.update(update)
        return await call_next(body)

    return Layer(handle, "", update_filter(_TOOL_KINDS | _STATE_KINDS))
