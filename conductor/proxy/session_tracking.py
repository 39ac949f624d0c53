"""Keeps the `Session` objects of a plugin up to date, and calls handlers that observe.

Layers of session set-up and end, prompts, modes and updates read what passes; they change messages
only to announce and answer the plugin's slash commands. For updates they come before the author's
handlers, which see the state after the update; for requests after them, so that they see the
response first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS
from conductor.errors import RequestError
from conductor.log import get_logger
from conductor.proxy.events import EventMark
from conductor.proxy.mcp_events import naming_layers
from conductor.proxy.middleware import Body, Layer, Next, location_of, text_or_none
from conductor.proxy.sessions import (
    Session,
    TurnEnd,
    chain_info,
    per_session,
    session_in,
    session_of,
)
from conductor.proxy.slash_commands import SlashCommand, answer, is_handled

__all__ = ["Observers", "add_session_attributes", "end_sessions", "layers_after", "layers_before"]

log: Final = get_logger()

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

_Function = Callable[..., Awaitable[Any]]


@attrs.frozen
class Observers:
    """The methods of a plugin class that observe events, and those that answer slash commands."""

    by_event: defaultdict[str, list[_Function]] = attrs.field(factory=lambda: defaultdict(list))
    """In method resolution order; an event without a handler has an empty list."""
    commands: list[tuple[EventMark, _Function]] = attrs.field(factory=list)

    def add(self, mark: EventMark, function: _Function) -> None:
        self.by_event[mark.event].append(function)
        if mark.event == "slash":
            self.commands.append((mark, function))


def layers_before(observers: Observers) -> Mapping[str, Sequence[Layer]]:
    """Return the layers that come before the author's, by method."""
    answer_command = partial(_answer_command, observers.commands)
    place = _place(function for _, function in observers.commands)
    by_event = observers.by_event
    layers = {
        "session/prompt": [Layer(answer_command, observer=place)],
        "session/update": [_tracking_layer(by_event)],
    }
    if by_event["on_tool_start"] or by_event["on_tool_end"]:
        layers["session/request_permission"] = [_observing(_asked, by_event["on_tool_start"])]
    if by_event["on_mcp"]:
        layers |= {method: [layer] for method, layer in naming_layers()}
    return layers


def layers_after(observers: Observers) -> Mapping[str, Sequence[Layer]]:
    """Return the layers that come after the author's, by method."""
    by_event = observers.by_event
    of_turns = _place(_of_turns(by_event))
    observe_end = partial(_observe_end, by_event) if of_turns else None
    layers = {
        "initialize": [Layer(partial(_initialize, observers.commands))],
        "session/prompt": [Layer(partial(_run_turn, observe_end), observer=of_turns)],
        "session/cancel": [_observing(_cancel, by_event["on_cancel"])],
        "session/set_mode": [Layer(_set_mode)],
        "session/set_config_option": [Layer(_set_config_option)],
    }
    for method in SESSION_SETUP_METHODS:
        functions = by_event["on_session"]
        layers[method] = [Layer(partial(_set_up, method, functions), observer=_place(functions))]
    for method in SESSION_END_METHODS:
        layers[method] = [_observing(_end, by_event["on_session_end"])]
    return layers


def _observing(handle: Callable[..., Awaitable[Body]], functions: Sequence[_Function]) -> Layer:
    """The layer of `handle`, which gets the observers as its first argument."""
    return Layer(partial(handle, functions), observer=_place(functions))


def _place(functions: Iterable[_Function]) -> str:
    """`file:line` of the first function, or nothing."""
    return next(map(location_of, functions), "")


def add_session_attributes(cls: type, observers: Observers) -> None:
    """Give a plugin class the attributes that its events need."""
    sessions = per_session(Session)
    sessions.__set_name__(cls, "_acp_session_objects")
    cls._acp_session_objects = sessions  # type: ignore[attr-defined]
    cls._acp_session_end = tuple(observers.by_event["on_session_end"])  # type: ignore[attr-defined]


async def end_sessions(plugin: Any) -> None:
    """Call `on_session_end` for the open sessions: the chain ends."""
    functions = getattr(type(plugin), "_acp_session_end", ())
    if functions:
        for session in list(plugin._acp_session_objects.values()):
            if session.opened_by is not None:
                await _observe(functions, plugin, session)


async def _observe(functions: Sequence[_Function], *args: Any) -> None:
    """Call the handlers of an event that cannot change a message; a failure is logged."""
    for function in functions:
        try:
            await function(*args)
        except Exception as exc:
            args[0]._acp_runtime.handler_failed(exc, handler=location_of(function))


async def _initialize(
    commands: Sequence[tuple[EventMark, _Function]], plugin: Any, body: Body, call_next: Next
) -> Body:
    info = chain_info(plugin)
    info.commands.own = [
        SlashCommand(mark.name_for(plugin), mark.description) for mark, _ in commands
    ]
    answered = await call_next(body)
    result = answered.value
    if not isinstance(result, dict):
        return answered
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
    known = True
    if reopened:  # the replay before the response may already ask for permission
        known = id in plugin._acp_session_objects
        session = session_of(plugin, id)
        names = ("opened_by", "forked_from", "cwd", "additional_directories", "mcp_servers")
        before = {name: getattr(session, name) for name in names}
        session.set_up(method, params)
        session.turns.resume_sent()
    try:
        answered = await call_next(body)
    except BaseException:
        if before is not None:
            for name, value in before.items():
                setattr(session, name, value)
            if not known:
                plugin._acp_session_objects.pop(id, None)
        raise
    finally:
        if before is not None:
            session.turns.resume_answered()
    result = answered.value if isinstance(answered.value, dict) else {}
    opened = result.get("sessionId", id)
    if not isinstance(opened, str):
        return answered
    session = session_of(plugin, opened)
    session.set_up(method, params)
    session.answered(result)
    if info.protocol_version > 1 and isinstance(answered.value, dict):
        with_commands = info.commands.with_own(result, session.commands)
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
    id = body.session_id
    if id is not None and id in plugin._acp_session_objects:
        session = session_of(plugin, id)
        session.turns.closed()
        await _observe(functions, plugin, session)
    return answered


async def _answer_command(
    commands: Sequence[tuple[EventMark, _Function]], plugin: Any, body: Body, call_next: Next
) -> Body:
    """Answer a slash command of this proxy; mark that of another proxy."""
    session = session_in(plugin, body)
    if session is None or not session.chain.commands.may_call(body.raw, session.commands):
        return await call_next(body)
    info, prompt = session.chain, body.value.get("prompt")
    if not isinstance(prompt, list):
        return await call_next(body)
    called = info.commands.called(prompt, session.commands)
    if called is None:
        body.is_command = info.commands.calls_other(prompt, session.commands)
        return await call_next(body)
    command, arguments = called
    function = commands[list(info.commands.own).index(command)][1]
    text = text_or_none(function, await function(plugin, session, arguments))
    answered = await answer(
        plugin.client,
        session.id,
        prompt,
        text or "",
        version=info.protocol_version,
        in_turn=session.is_running,
    )
    return Body.of(answered)


async def _run_turn(
    observe_end: Callable[..., Awaitable[None]] | None, plugin: Any, body: Body, call_next: Next
) -> Body:
    session = session_in(plugin, body)
    if session is None or body.is_command:
        return await call_next(body)
    session.cancelled = False
    is_version_1 = session.chain.protocol_version == 1
    turns, prompt = session.chain.turns.sessions.get(session.id) or session.turns, object()
    turns.prompt_sent(prompt, trio.current_time())
    try:
        answered = await call_next(body)
    except BaseException as exc:
        turns.prompt_answered(prompt, trio.current_time(), accepted=False)
        if is_version_1 and isinstance(exc, RequestError):
            end = session.turn_ended({}, exc)
            if observe_end is not None:
                await observe_end(plugin, session, end)
        raise
    result = answered.value
    is_turn = isinstance(result, dict) and not is_handled(result)
    reason = result.get("stopReason") or ("end_turn" if is_version_1 else None) if is_turn else None
    turns.prompt_answered(prompt, trio.current_time(), accepted=is_turn, stop_reason=reason)
    if is_version_1 and is_turn:
        end = session.turn_ended(result)
        if observe_end is not None:
            await observe_end(plugin, session, end)
    return answered


async def _observe_end(
    by_event: Mapping[str, Sequence[_Function]], plugin: Any, session: Session, end: TurnEnd
) -> None:
    """Call the handlers of a turn's end, after those of the tool calls that end with it."""
    for call in end.unfinished:
        if call.start():
            await _observe(by_event["on_tool_start"], plugin, session, call)
        if call.end():
            await _observe(by_event["on_tool_end"], plugin, session, call)
    await _observe(by_event["on_turn_end"], plugin, session, end)


async def _asked(functions: Sequence[_Function], plugin: Any, body: Body, call_next: Next) -> Body:
    """The agent asks for permission: an announced tool call starts now, if it has not."""
    params = body.value
    if isinstance(params, dict) and isinstance(id := params.get("sessionId"), str):
        session = session_of(plugin, id)
        told = session.call_table.told_in(params)
        call = session.call_table.starting(told) if isinstance(told, dict) else None
        if call is not None:
            await _observe(functions, plugin, session, call)
    return await call_next(body)


async def _cancel(functions: Sequence[_Function], plugin: Any, body: Body, call_next: Next) -> Body:
    id = body.session_id
    if id is not None:
        session = session_of(plugin, id)
        session.cancelled = True
        session.turns.cancel(trio.current_time())
        await _observe(functions, plugin, session)
        for scope in session.held_prompts:
            scope.cancel()
    return await call_next(body)


async def _set_mode(plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    if (id := body.session_id) is not None:
        session_of(plugin, id).mode_set(body.value.get("modeId"))
    return answered


async def _set_config_option(plugin: Any, body: Body, call_next: Next) -> Body:
    answered = await call_next(body)
    id = body.session_id
    if id is not None and isinstance(answered.value, dict):
        session_of(plugin, id).answered(answered.value)
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
            tables = (each.call_table for each in plugin._acp_session_objects.values())
            if session.chain.tool_calls.add(len(body.raw or b""), tables):
                log.warning("outputs of tool calls forgotten: the agent leaves too many unfinished")
            call, starts, ends = session.call_table.update(update)
            if starts:
                await _observe(by_event["on_tool_start"], plugin, session, call)
            if ends:
                merged = session.call_table.merged(call)
                await _observe(by_event["on_tool_end"], plugin, session, merged)
            try:
                return await call_next(body)
            finally:
                session.call_table.forget_ended(call)
        elif kind == "state_update":
            end = session.state_update(update)
            if end is not None:
                await _observe_end(by_event, plugin, session, end)
        elif kind == "available_commands_update":
            commands = session.chain.commands
            changed = commands.with_own(update, session.commands)
            if changed is not update:
                body = Body.of({**params, "update": changed})
        elif kind == "subagent_update":
            if isinstance(id := update.get("sessionId"), str):
                child = session_of(plugin, id)
                child.subagent_of(session, update)
                state = update.get("state")
                # In version 2 it repeats the state that the child's session reports.
                if session.protocol_version == 1 and isinstance(state, dict):
                    end = child.state_update(state)
                    if end is not None:
                        await _observe_end(by_event, plugin, child, end)
        else:
            session.update(update)
        return await call_next(body)

    kinds = _TOOL_KINDS | _STATE_KINDS
    return Layer(handle, kinds=kinds, observer=_place(_of_turns(by_event)))


def _of_turns(by_event: Mapping[str, Sequence[_Function]]) -> Iterator[_Function]:
    """The observers that the end of a turn may call."""
    for event in ("on_tool_start", "on_tool_end", "on_turn_end"):
        yield from by_event[event]
