"""Messages in protocol versions 1 and 2: whole or in chunks, with or without ids. Pure.

Version 2 replaces the content of a message by a whole-message update, version 1 can only append to
it. The sent part of each message is remembered as its length and hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.v1_v2.content import convert_block
from proxies.v1_v2.members import Json, key_of, objects, text_block, without

__all__ = ["MessagesToV1", "MessagesToV2"]

_MAX_MESSAGES: Final = 1000
"""Maximum remembered messages of a session; the oldest are forgotten."""


@attrs.define
class _Sent:
    """The part of a message that a client of version 1 has received."""

    replacement: int = 0
    """The number of the replacement that it is; each has an id of its own there."""
    length: int = 0
    hash: Any = attrs.field(factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, block: Any) -> None:
        piece = _piece(block)
        self.length += len(piece)
        self.hash.update(piece.encode(errors="surrogatepass"))

    def begins(self, blocks: Sequence[Any]) -> bool:
        """Whether these blocks begin with what was sent."""
        text = "".join(map(_piece, blocks))
        begun = text[: self.length].encode(errors="surrogatepass")
        digest = hashlib.blake2b(begun, digest_size=16).digest()
        return len(text) >= self.length and bool(digest == self.hash.digest())

    def named(self, update: Json) -> Json:
        """An update of the message with its id there."""
        id = update.get("messageId")
        if not self.replacement or not isinstance(id, str):
            return update
        return {**update, "messageId": f"{id}#{self.replacement}"}


@attrs.define
class MessagesToV1:
    """Converts the messages of one session to version 1."""

    _sent: BoundedDict[str, _Sent] = attrs.field(
        factory=lambda: BoundedDict(_MAX_MESSAGES), init=False
    )
    _replaced: int = attrs.field(default=0, init=False)

    def chunk(self, update: Json) -> list[Json]:
        """The chunk of version 1 for one of version 2."""
        sent = self._sent.setdefault(_key(update), _Sent())
        sent.add(update.get("content"))
        return [{**sent.named(update), "content": convert_block(update.get("content"), 1)}]

    def whole(self, update: Json) -> list[Json]:
        """Chunks for a whole-message update.

        Only what is new if the message begins with what was sent, else everything, as another
        message. A client of version 1 cannot clear a message.
        """
        key, blocks = _key(update), objects(update.get("content"))
        sent = self._sent.setdefault(key, _Sent())
        if not blocks:
            return []
        if not sent.begins(blocks):
            self._replaced += 1
            sent = self._sent[key] = _Sent(self._replaced)
        left = _behind(blocks, sent.length)
        for block in left:
            sent.add(block)
        kind = f"{update['sessionUpdate']}_chunk"
        base = {**without(sent.named(update), "content"), "sessionUpdate": kind}
        return [{**base, "content": convert_block(block, 1)} for block in left]


def _key(update: Json) -> str:
    """The message of an update, as a key of what is remembered."""
    return key_of(str(update.get("messageId")))


def _piece(block: Any) -> str:
    """A block as text: equal blocks, and texts cut at any place, are equal."""
    if isinstance(block, dict) and block.get("type") == "text":
        return str(block.get("text"))
    return "\0" + json.dumps(block, sort_keys=True) + "\0"


def _behind(blocks: list[Json], length: int) -> list[Json]:
    """The blocks without the first characters."""
    left: list[Json] = []
    for block in blocks:
        size = len(_piece(block))
        if length <= 0:
            left.append(block)
        elif size > length:  # only a text is ever cut
            left.append({**text_block(""), **block, "text": str(block.get("text"))[length:]})
        length -= size
    return left


@attrs.define
class MessagesToV2:
    """Gives the chunks of one session the ids that version 2 requires.

    Chunks without an id that follow each other are one message, as clients of version 1 show them.
    """

    _kind: str = attrs.field(default="", init=False)
    _number: int = attrs.field(default=0, init=False)

    def chunk(self, update: Json) -> Json:
        kind = str(update.get("sessionUpdate"))
        block = update.get("content")
        if (converted := convert_block(block, 2)) is not block:
            update = {**update, "content": converted}
        if isinstance(update.get("messageId"), str):
            self._kind = ""
            return update
        if kind != self._kind:
            self._kind = kind
            self._number += 1
        return {**update, "messageId": f"message-{self._number}"}

    def new_id(self) -> str:
        """The id of a further message."""
        self.interrupt()
        self._number += 1
        return f"message-{self._number}"

    def interrupt(self) -> None:
        """Begin another message with the next chunk: a turn or a tool call is in between."""
        self._kind = ""
