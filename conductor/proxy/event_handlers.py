"""The handlers of events of a plugin class, as layers of the wire methods that carry the events.

A handler that decides about a message has a layer: it reads the message once, gives the author's
function what the event promises (`events`), and sends on what it returns or forwards. Handlers that
only observe are called by `session_tracking`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import attrs

from conductor.acp import SESSION_SETUP_METHODS
from conductor.errors import LocalProtocolError
from conductor.proxy.event_arguments import (
    PermissionQuestion,
    Prompt,
    PromptCancelled,
    Question,
    SessionSetup,
)
from conductor.proxy.events import EventMark, event_marks
from conductor.proxy.mcp_events import mcp_layer
from conductor.proxy.middleware import (
    Body,
    Handler,
    Layer,
    Next,
    SentRequest,
    handler_layer,
    location_of,
    text_or_none,
)
from conductor.proxy.misfits import InvalidParams, session_id_in
from conductor.proxy.session_tracking import Observers, layers_after, layers_before
from conductor.proxy.sessions import session_in, session_of
from conductor.proxy.text_filters import text_filter_layers

__all__ = ["EventLayers", "event_layers"]

_TEXT_KINDS: Final = {
    "agent": ("agent_message_chunk",),
    "thought": ("agent_thought_chunk",),
    "user": ("user_message_chunk",),
}

_Function = Callable[..., Any]


@attrs.define
class EventLayers:
    """The layers of a plugin class, by method. Those of the author's handlers are placed between
    those that track sessions (`session_tracking`)."""

    authors: Mapping[str, Sequence[tuple[int, Layer]]]
    """With the position of the handler in the class and its bases."""
    observers: Observers
    before: Mapping[str, Sequence[Layer]] = attrs.field(init=False)
    after: Mapping[str, Sequence[Layer]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.before, self.after = layers_before(self.observers), layers_after(self.observers)

    @property
    def methods(self) -> list[str]:
        """The methods that have a layer."""
        return list(dict.fromkeys([*self.before, *self.authors, *self.after]))

    def around(self, method: str, handlers: Sequence[tuple[int, Handler]]) -> list[Layer]:
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
    """Return the layers of these methods, given with their positions; `None` if none of them
    handles an event."""
    observers = Observers(defaultdict(list), [])
    authors: dict[str, list[tuple[int, Layer]]] = defaultdict(list)
    found = False
    for position, function in members:
        for mark in event_marks(function):
            found = True
            observers.add(mark, function)
            for method, layer in _author_layers(function, mark):
                authors[method].append((position, layer))
    return EventLayers(authors, observers) if found else None


def _author_layers(function: _Function, mark: EventMark) -> Iterable[tuple[str, Layer]]:
    """Yield the methods that carry an event, each with the layer that calls its handler."""
    location = location_of(function)
    match mark.event:
        case "on_session_setup":
            for method in SESSION_SETUP_METHODS:
                yield method, Layer(partial(_setup, function, method), location)
        case "on_prompt":
            yield "session/prompt", Layer(partial(_prompt, function), location)
        case "on_permission":
            yield "session/request_permission", Layer(partial(_permission, function), location)
        case "on_question":
            yield "elicitation/create", Layer(partial(_question, function), location)
        case "on_update":
            handle = partial(_update, function, frozenset(mark.kinds))
            yield "session/update", Layer(handle, location, frozenset(mark.kinds))
        case "on_text":
            kinds = [kind for role in mark.kinds for kind in _TEXT_KINDS[role]]
            handle = partial(_text, function, frozenset(kinds))
            yield "session/update", Layer(handle, location, frozenset(kinds))
        case "text_filter":
            kinds = [kind for role in mark.kinds for kind in _TEXT_KINDS[role]]
            yield from text_filter_layers(function, frozenset(kinds))
        case "on_mcp":
            yield "mcp/message", mcp_layer(function, mark.kinds)


async def _setup(
    function: _Function, method: str, plugin: Any, body: Body, call_next: Next
) -> Body:
    opened_by: Any = method.removeprefix("session/")
    setup = SessionSetup(opened_by, body.decode())
    sent = SentRequest(call_next, lambda changed: body.edited((changed or setup).params))
    result = await function(plugin, setup, sent.forward)
    return sent.answered(function, result, "`return await forward()`")


async def _prompt(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    if body.is_command:
        return await call_next(body)
    session = session_in(plugin, body)
    if session is None:
        raise InvalidParams("sessionId: expected string")

    def edited(changed: Prompt | None) -> Body:
        shown = prompt if changed is None else changed
        if not shown.is_read:
            return body
        received, blocks = body.value, shown.blocks
        passed = body.edited({**received, "prompt": blocks})
        if passed is not body:
            _check_blocks(function, blocks, received["prompt"])
            passed.session = body.session
        return passed

    sent = SentRequest(call_next, edited)
    prompt = Prompt(plugin, session, body, sent)
    try:
        result = await function(plugin, session, prompt, sent.forward)
    except PromptCancelled:
        if session.protocol_version > 1:
            raise
        return Body.of({"stopReason": "cancelled"})
    return sent.answered(
        function, result, "`return await forward()` or `return await prompt.answer(…)`"
    )


def _check_blocks(function: _Function, blocks: Any, received: Any) -> None:
    """Raise `LocalProtocolError` if the author has put a text in the place of a content block."""
    if isinstance(blocks, list | tuple):
        for each in blocks:
            if isinstance(each, str) and each not in received:
                break
        else:
            return
    raise LocalProtocolError(
        f"{function.__qualname__} has changed `prompt.blocks` to something else than a list of "
        "content blocks; for a text write `text(…)`, imported from conductor.proxy"
    )


async def _permission(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    session = session_of(plugin, session_id_in(params))
    told = session.call_table.told_in(params)
    call, announced = None, {}
    if isinstance(told, dict):
        known = session.tool_calls.get(str(told.get("toolCallId", "")))
        announced = {} if known is None else dict(known.members)
        call = session.call_table.update_asked(told)
    options = [each for each in params.get("options") or () if isinstance(each, dict)]
    asked = PermissionQuestion(
        call, options, params, session, announced, told if isinstance(told, dict) else {}
    )
    sent = SentRequest(
        call_next, lambda changed: body.edited(params if changed is None else changed)
    )
    return sent.answered(
        function,
        await function(plugin, session, asked, sent.forward),
        "`return await forward()`, `return asked.allow()` or `return asked.deny()`",
    )


async def _question(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    id = params.get("sessionId")
    session = session_of(plugin, id) if isinstance(id, str) else None
    question = Question(str(params.get("message", "")), params)
    sent = SentRequest(
        call_next, lambda changed: body.edited(params if changed is None else changed)
    )
    return sent.answered(
        function,
        await function(plugin, session, question, sent.forward),
        "`return await forward()`, `return question.accept(…)` or `return question.decline()`",
    )


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

    await function(plugin, session_of(plugin, session_id_in(params)), update, forward)
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
    session = session_of(plugin, session_id_in(params))
    shown = text_or_none(function, await function(plugin, session, text))
    if shown is None or shown == text:
        return await call_next(body)
    changed = {**params, "update": {**update, "content": {**content, "text": shown}}}
    return await call_next(Body.of(changed))
