"""`redact`: keeps secrets from the model, and from whoever looks at the screen.

Secrets are found by pattern (API keys, tokens, private keys) and by value (of the environment's
variables). Toward the agent they are replaced in prompts and in what the client answers about files
and terminals; toward the client in all that the agent says and does, also where a secret comes in
pieces: what may be the beginning of one is held back until it cannot be any more, or until
something else of the conversation comes, at the latest until the turn's end.

The agent sees `[redacted:github-token:1]`; when it writes that into a file, the file gets the
secret. Commands do not: that would let a prompt injection send it away.

Options:
    builtin      the built-in patterns that are used, by name; default all
    patterns     more of them, by name: regular expressions (RE2); if only a part of the match is
                 the secret, it is the group `(?P<secret>…)`
    environment  globs for the names of variables whose values are secrets; default *TOKEN*,
                 *SECRET*, *PASSWORD*, *API_KEY*, *PRIVATE_KEY*, *ACCESS_KEY*
    shortest     how long a value is at least to be a secret; default 8
    hold         how many characters are held back at most; default 16384. A secret that is longer
                 is replaced, too, up to the next white space.

Not looked into: images, other base64, extension methods, MCP messages, and what the agent reads by
itself. `required`: if it cannot run, neither does the chain.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
from attrs.validators import gt

from conductor.proxy import Forward, Proxy, RequestError, on, per_session
from proxies._positions import walk
from proxies._secrets import PATTERNS, Secrets, Tail, check_patterns, environment_values
from proxies._shapes import BESIDE

__all__ = ["Redact"]

_VARIABLES = ["*TOKEN*", "*SECRET*", "*PASSWORD*", "*API_KEY*", "*PRIVATE_KEY*", "*ACCESS_KEY*"]
_CHUNKS = {
    "agent_message_chunk": "messageId",
    "agent_thought_chunk": "messageId",
    "user_message_chunk": "messageId",
    "session_message_chunk": "messageId",
    "compaction_summary_chunk": "compactionId",
    "terminal_output_chunk": "terminalId",
}
"""Updates that are pieces of a text, and the member that tells whose."""


def _check_names(instance: Any, field: Any, value: list[str]) -> None:
    for name in value:
        if name not in PATTERNS:
            raise ValueError(f"there is no built-in pattern `{name}`, only {', '.join(PATTERNS)}")


def _check(instance: Any, field: Any, value: Mapping[str, str]) -> None:
    check_patterns(value)


_Key: TypeAlias = tuple[str, str | None]
"""The kind of update, and whose text it is. Without an id, the next text ends the one before."""


@attrs.define
class _Stream:
    """A text that comes in pieces, and the last of these, to send the rest in its shape."""

    tail: Tail
    last: dict[str, Any]


@attrs.define
class Redact(Proxy):
    """Replace secrets by placeholders."""

    required = True

    builtin: list[str] = attrs.field(factory=lambda: list(PATTERNS), validator=_check_names)
    patterns: dict[str, str] = attrs.field(factory=dict, validator=_check)
    environment: list[str] = attrs.field(factory=lambda: list(_VARIABLES))
    shortest: int = attrs.field(default=8, validator=gt(3))
    hold: int = attrs.field(default=16384, validator=gt(0))
    _secrets: Secrets = attrs.field(init=False, repr=False)

    streams = per_session(dict[_Key, _Stream])

    def __attrs_post_init__(self) -> None:
        values = environment_values(self.environment, os.environ, self.shortest)
        chosen = {name: PATTERNS[name] for name in self.builtin}
        self._secrets = Secrets({**self.patterns, **chosen}, values)

    # -- toward the agent --------------------------------------------------------------------------

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        try:
            return await forward({**params, "prompt": self._clean(params["prompt"])})
        except RequestError as exc:
            raise RequestError(exc.code, *self._clean([exc.message, exc.data])) from None
        finally:
            await self._flush(params["sessionId"])

    @on("session/load")
    @on("session/resume")
    async def replay(self, params: dict[str, Any], forward: Forward) -> Any:
        try:
            return await forward()
        finally:
            await self._flush(params["sessionId"])

    @on("fs/read_text_file")
    @on("terminal/output")
    async def output(self, params: dict[str, Any], forward: Forward) -> Any:
        await self._flush(params.get("sessionId", ""))
        return walk(await forward(), self._secrets.redact_output)

    # -- toward the client -------------------------------------------------------------------------

    @on("session/update")
    async def update(self, params: dict[str, Any], forward: Forward) -> None:
        update, session_id = params["update"], params["sessionId"]
        kind = update.get("sessionUpdate")
        text = _text_of(update)
        if kind in _CHUNKS and text is not None:
            key = (kind, update.get(_CHUNKS[kind]))
            await self._flush(session_id, unless=lambda other: other == key or other[1] is not None)
            streams = self.streams[session_id]
            if key not in streams:
                streams[key] = _Stream(Tail(self._secrets, self.hold), params)
            streams[key].last = params
            shown = streams[key].tail.feed(text)
            if shown or not text:
                await forward(_with_text(params, shown))
            return
        if kind not in BESIDE:
            await self._flush(session_id)
        await forward(self._clean(params))

    @on("session/request_permission")
    @on("elicitation/create")
    async def question(self, params: dict[str, Any], forward: Forward) -> Any:
        await self._flush(params.get("sessionId", ""))
        return await forward(self._clean(params))

    @on("fs/write_text_file")
    async def write(self, params: dict[str, Any], forward: Forward) -> Any:
        return await forward({**params, "content": self._secrets.restore(params["content"])})

    # ----------------------------------------------------------------------------------------------

    def _clean(self, value: Any) -> Any:
        return walk(value, self._secrets.redact)

    async def _flush(
        self, session_id: str, *, unless: Callable[[_Key], bool] = lambda key: False
    ) -> None:
        """Show what was held back of a session's texts: they end here."""
        streams = self.streams[session_id]
        for key in [key for key in streams if not unless(key)]:
            stream = streams.pop(key)
            if rest := stream.tail.flush():
                await self.client.notify("session/update", _with_text(stream.last, rest))


def _text_of(update: Mapping[str, Any]) -> str | None:
    """The text of a piece; a terminal's bytes one character each."""
    if isinstance(data := update.get("data"), str):
        return base64.b64decode(data).decode("latin-1")
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else None


def _with_text(params: dict[str, Any], text: str) -> dict[str, Any]:
    update = params["update"]
    if "data" in update:
        data = base64.b64encode(text.encode("latin-1", "replace")).decode()
        return {**params, "update": {**update, "data": data}}
    return {**params, "update": {**update, "content": {**update["content"], "text": text}}}
