"""Texts that arrive in chunks, rewritten by filters that may hold back their end.

A filter rewrites one text. Held-back text is sent when the text ends: in the shape of its last
chunk, before the update that ends it. An update of session state ends no text, nor does a chunk of
another text if both have ids; any other update ends all. Waits for nothing but the filters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol, TypeAlias

import attrs

from conductor.proxy.prompt_turn import SESSION_STATE_UPDATES

__all__ = ["TEXT_CHUNKS", "TextFilter", "TextStreams", "chunk_text", "with_chunk_text"]

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
        key = (kind, _identity(update.get(TEXT_CHUNKS[kind])))
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


def _identity(id: Any) -> str | None:
    """The id of a text; one of another JSON type is encoded."""
    return id if id is None or isinstance(id, str) else json.dumps(id)
