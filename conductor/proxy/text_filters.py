"""The layers of `@text_filter`: pass texts through filters, and send what these hold back in time.

Held-back text is sent before a request of the agent that the user sees, and before the response to
a request that ends a turn, a replay or the session. That of a subagent is sent when it is idle, or
with its parent's, if the agent does not report that it is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from conductor.proxy.chain_info import chain_info
from conductor.proxy.middleware import Body, Layer, Next, location_of
from conductor.proxy.sessions import session_of
from conductor.proxy.text_streams import TextFilter, TextStreams
from conductor.proxy.update_kinds import UpdateFilter, update_filter

__all__ = ["text_filter_layers"]

_Function = Callable[[Any, Any], TextFilter]

_ENDS_BEFORE: Final = (
    "elicitation/create",
    "fs/read_text_file",
    "fs/write_text_file",
    "session/request_permission",
    "terminal/create",
    "terminal/output",
)
_ENDS_AFTER: Final = (
    "session/close",
    "session/delete",
    "session/load",
    "session/prompt",
    "session/resume",
)
_MAX_SESSIONS: Final = 1000
"""Maximum sessions with open texts; an agent can invent ids."""


def text_filter_layers(function: _Function, kinds: frozenset[str]) -> Iterator[tuple[str, Layer]]:
    """Yield the methods with a layer, for a function that returns the filter of a new text."""
    location = location_of(function)
    yield (
        "session/update",
        Layer(partial(_update, function, kinds, update_filter(kinds)), location),
    )
    for method in _ENDS_BEFORE:
        yield method, Layer(partial(_end_before, function), location)
    for method in _ENDS_AFTER:
        yield method, Layer(partial(_end_after, function), location)


async def _update(
    function: _Function,
    kinds: frozenset[str],
    accepts: UpdateFilter,
    plugin: Any,
    body: Body,
    call_next: Next,
) -> Body:
    open_texts = chain_info(plugin).open_texts
    if not open_texts and not accepts(body.raw):
        return await call_next(body)
    params = body.value
    update, id = params.get("update"), params.get("sessionId")
    if not isinstance(update, dict) or not isinstance(id, str):
        return await call_next(body)
    if update.get("sessionUpdate") == "subagent_update":
        state = update.get("state")
        if isinstance(state, dict) and state.get("state") == "idle":
            await _end(plugin, function, update.get("sessionId"))
    streams = open_texts.get((function, id))
    if streams is None:
        if update.get("sessionUpdate") not in kinds:
            return await call_next(body)
        if len(open_texts) >= _MAX_SESSIONS:
            await _end(plugin, *next(iter(open_texts)))
        new_filter = partial(function, plugin, session_of(plugin, id))
        streams = open_texts[function, id] = TextStreams(new_filter, kinds)
    for sent in await streams.rewrite(params):
        await call_next(body if sent is params else Body.of(sent))
    if not streams.is_open:
        open_texts.pop((function, id), None)
    return body


async def _end_before(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    await _end(plugin, function, body.session_id)
    return await call_next(body)


async def _end_after(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    try:
        return await call_next(body)
    finally:
        await _end(plugin, function, body.session_id)
        for each, id in list(chain_info(plugin).open_texts):
            session = session_of(plugin, id or "")
            is_below = session.parent is not None and not session.is_running
            if each is function and is_below and session.user_session.id == body.session_id:
                await _end(plugin, function, id)


async def _end(plugin: Any, function: _Function, session_id: str | None) -> None:
    streams = chain_info(plugin).open_texts.pop((function, session_id), None)
    if streams is not None:
        for sent in await streams.end():
            await plugin.client.notify("session/update", sent)
