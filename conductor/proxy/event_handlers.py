"""Handlers of events that decide about a message, as layers of the method that carries it.

Each reads the message once, gives the author's function what the event promises (`events`), and
sends on what it returns or forwards. Handlers that only observe are called by `session_tracking`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import trio

from conductor.acp import SESSION_SETUP_METHODS
from conductor.errors import LocalProtocolError, RequestCancelled
from conductor.proxy.event_arguments import PermissionQuestion, Prompt, Question, SessionSetup
from conductor.proxy.events import EventMark
from conductor.proxy.mcp_events import mcp_layer
from conductor.proxy.middleware import Body, Layer, Next, location_of
from conductor.proxy.misfits import InvalidParams, session_id_in
from conductor.proxy.returned import SentRequest, answer_body, text_or_none
from conductor.proxy.sessions import Session, session_of, shows_notices
from conductor.proxy.slash_commands import answer, is_handled
from conductor.proxy.text_filters import text_filter_layers

__all__ = ["author_layers"]

_TEXT_KINDS: Final = {
    "agent": ("agent_message_chunk",),
    "thought": ("agent_thought_chunk",),
    "user": ("user_message_chunk",),
}

_Function = Callable[..., Any]


def author_layers(function: _Function, mark: EventMark) -> Iterable[tuple[str, Layer]]:
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

    sent = SentRequest(call_next)

    async def forward(changed: SessionSetup | None = None) -> Any:
        return await sent(body.edited((changed or setup).params))

    result = await function(plugin, setup, forward)
    return answer_body(function, result, sent, "`return await forward()`")


async def _prompt(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    if body.is_command:
        return await call_next(body)
    if body.session_id is None:
        raise InvalidParams("sessionId: expected string")
    session = session_of(plugin, body.session_id)

    async def answer_prompt(text: str, stop_reason: str, counts: bool) -> dict[str, Any]:
        return await answer(
            plugin.client,
            session.id,
            prompt.blocks,
            text,
            version=session.protocol_version,
            stop_reason=stop_reason,
            in_turn=session.is_running,
            counts=counts,
            as_notice=stop_reason == "refusal" and bool(text) and shows_notices(session),
        )

    prompt = Prompt(
        partial(_blocks, body),
        session.protocol_version,
        answer_prompt,
        partial(_wait, plugin, session),
        session.commands.by_agent | session.commands.by_proxies,
    )

    sent = SentRequest(call_next)

    async def forward(changed: Prompt | None = None) -> Any:
        passed = body
        if (shown := prompt if changed is None else changed).is_read:
            passed = body.edited({**body.value, "prompt": shown.blocks})
            if passed is not body:
                _check_blocks(function, shown.blocks, body.value["prompt"])
        result = await sent(passed)
        prompt.answered_by_proxy = isinstance(result, dict) and is_handled(result)
        return result

    try:
        result = await function(plugin, session, prompt, forward)
    except _PromptCancelled:
        if session.protocol_version > 1:
            raise
        return Body.of({"stopReason": "cancelled"})
    return answer_body(
        function, result, sent, "`return await forward()` or `return await prompt.answer(…)`"
    )


def _blocks(body: Body) -> list[Any]:
    """The content blocks of a prompt, for a handler that may change them."""
    blocks = body.decode().get("prompt")
    if not isinstance(blocks, list):
        raise InvalidParams("prompt: expected array")
    return blocks


def _check_blocks(function: _Function, blocks: Any, received: Any) -> None:
    """Raise `LocalProtocolError` if the author has put a text in the place of a content block."""
    if isinstance(blocks, list | tuple) and all(
        not isinstance(each, str) or each in received for each in blocks
    ):
        return
    raise LocalProtocolError(
        f"{function.__qualname__} has changed `prompt.blocks` to something else than a list of "
        "content blocks; for a text write `text(…)`, imported from conductor.proxy"
    )


class _PromptCancelled(RequestCancelled):
    """`session/cancel` has arrived while a prompt was held back."""


async def _wait(plugin: Any, session: Session, function: _Function, *args: Any) -> Any:
    plugin.release_lane()
    with trio.CancelScope() as scope:
        session.held_prompts.add(scope)
        try:
            return await function(*args)
        finally:
            session.held_prompts.discard(scope)
    raise _PromptCancelled


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

    sent = SentRequest(call_next)

    async def forward(changed: Mapping[str, Any] | None = None) -> Any:
        return await sent(body.edited(params if changed is None else changed))

    return answer_body(
        function,
        await function(plugin, session, asked, forward),
        sent,
        "`return await forward()`, `return asked.allow()` or `return asked.deny()`",
    )


async def _question(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    id = params.get("sessionId")
    session = session_of(plugin, id) if isinstance(id, str) else None

    sent = SentRequest(call_next)

    async def forward(changed: Mapping[str, Any] | None = None) -> Any:
        return await sent(body.edited(params if changed is None else changed))

    question = Question(str(params.get("message", "")), params)
    return answer_body(
        function,
        await function(plugin, session, question, forward),
        sent,
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
