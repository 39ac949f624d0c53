"""Texts that arrive in chunks, rewritten by filters that may hold back their end (`@text_filter`).

A filter rewrites one text. Held-back text is sent when the text ends: in the shape of its last
chunk, before the update that ends it. An update of session state ends no text, nor does a chunk of
another text if both have ids; any other update ends all. `TextStreams` waits for nothing but the
filters.

The layers of `@text_filter` also send held-back text before a request of the agent that the user
sees, and before the response to a request that ends a turn, a replay or the session. That of a
subagent is sent when it is idle, or with its parent's, if the agent does not report that it is at
work.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import attrs

from conductor.proxy.middleware import (
    Body,
    Layer,
    Next,
    UpdateFilter,
    location_of,
    update_filter,
)
from conductor.proxy.peers import SESSION_STATE_UPDATES
from conductor.proxy.sessions import chain_info, session_of

__all__ = [
    "TEXT_CHUNKS",
    "TextFilter",
    "TextStreams",
    "chunk_text",
    "with_chunk_text",
]

_TERMINAL: Final = "terminal_output_chunk"
TEXT_CHUNKS: Final[Mapping[str, str]] = {
    "agent_message_chunk": "messageId",
    "agent_thought_chunk": "messageId",
    "user_message_chunk": "messageId",
    "session_message_chunk": "messageId",
    "compaction_summary_chunk": "compactionId",
    _TERMINAL: "terminalId",
}
"""Kinds of updates that are chunks of a text, and the member with the id of the text."""

_MAX_OPEN: Final = 1000
"""Maximum open texts of a session."""

_Key: TypeAlias = tuple[str, str | None]
"""The kind of update and the id of its text. Without an id, the next text ends the previous one."""


class TextFilter(Protocol):
    """Rewrites one text. The methods may be async."""

    def feed(self, text: str) -> str | Awaitable[str]:
        """Return the text that can be shown after this piece."""

    def end(self) -> str | Awaitable[str]:
        """Return what was held back: the text has ended."""


@attrs.define(eq=False)
class _Text:
    filter: TextFilter
    last: dict[str, Any]
    """Params of the last chunk."""


@attrs.define(eq=False)
class TextStreams:
    """The open texts of one session, each with a filter that `new_filter` has created."""

    new_filter: Callable[[], TextFilter]
    kinds: Collection[str] = attrs.field(default=TEXT_CHUNKS.keys())
    _open: dict[_Key, _Text] = attrs.field(factory=dict, init=False)

    @property
    def is_open(self) -> bool:
        """Whether a text has begun and not ended."""
        return bool(self._open)

    async def rewrite(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the params of the updates to send in place of this one.

        They are the held-back ends of the texts that it ends, and then the update itself, unless
        all of its text is held back.
        """
        update = params["update"]
        kind = update.get("sessionUpdate")
        text = chunk_text(update) if kind in self.kinds else None
        if text is None:
            return [params] if kind in SESSION_STATE_UPDATES else [*await self.end(), params]
        id = update.get(TEXT_CHUNKS[kind])
        key = (kind, None if id is None else str(id))
        sent: list[dict[str, Any]] = []
        if len(self._open) > 1 or key not in self._open:
            for other in [each for each in self._open if each[1] is None and each != key]:
                sent += await self._end(other)
        stream = self._open.get(key)
        if stream is None:
            if len(self._open) >= _MAX_OPEN:
                sent += await self._end(next(iter(self._open)))
            stream = self._open[key] = _Text(self.new_filter(), params)
        stream.last = params
        shown = stream.filter.feed(text)
        if not isinstance(shown, str):
            shown = await shown
        if shown or not text:
            sent.append(params if shown == text else with_chunk_text(params, shown))
        return sent

    async def end(self) -> list[dict[str, Any]]:
        """End all texts; return the params of the updates with what was held back."""
        return [each for key in list(self._open) for each in await self._end(key)]

    async def _end(self, key: _Key) -> list[dict[str, Any]]:
        stream = self._open.pop(key)
        rest = stream.filter.end()
        if not isinstance(rest, str):
            rest = await rest
        return [with_chunk_text(stream.last, rest)] if rest else []


def chunk_text(update: Mapping[str, Any]) -> str | None:
    """The text of an update that is a chunk of one; `None` if it has none, such as an image.

    Terminal output has one character per byte.
    """
    if update.get("sessionUpdate") == _TERMINAL:
        try:
            return base64.b64decode(update["data"]).decode("latin-1")
        except (KeyError, TypeError, ValueError):
            return None
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else None


def with_chunk_text(params: dict[str, Any], text: str) -> dict[str, Any]:
    """The params of a chunk, with another text."""
    update = params["update"]
    if update["sessionUpdate"] == _TERMINAL:
        data = base64.b64encode(text.encode("latin-1", "replace")).decode()
        return {**params, "update": {**update, "data": data}}
    return {**params, "update": {**update, "content": {**update["content"], "text": text}}}


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
