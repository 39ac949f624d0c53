"""The Streamable HTTP profile of one client: POSTs go in, long-lived event streams come out.

One task takes what the agent says and puts it where the router says; a stream takes it from there.
`initialize` alone is answered in the response to its POST, with the connection's id added.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import msgspec
import trio
from msgspec import UNSET, UnsetType

from conductor.acp import SESSION_SETUP_METHODS
from conductor.errors import ConnectionClosed
from conductor.jsonrpc.codec import decode_message, object_members, with_member
from conductor.jsonrpc.messages import (
    INVALID_PARAMS,
    Id,
    Message,
    Payload,
    encode_error,
    error_pieces,
    result_pieces,
)
from conductor.network.sequence_numbers import DuplicateFilter
from conductor.server.access import Refusal
from conductor.server.clients import RemoteClient
from conductor.server.http.mailboxes import Mailbox, Mailboxes
from conductor.server.http.parse_request import ATTACH_METHODS, PostedMessage
from conductor.server.http.stream_router import StreamRouter
from conductor.server.limits import ServerLimits

__all__ = ["ServerHttpConnection"]

_TOO_MANY_STREAMS: Final = "too many session streams are open"


@attrs.define(eq=False)
class ServerHttpConnection:
    """What a `RemoteClient` that speaks HTTP has besides."""

    client: RemoteClient
    limits: ServerLimits
    mailboxes: Mailboxes = attrs.field(init=False)
    router: StreamRouter = attrs.field(factory=StreamRouter)
    is_resumable: bool = False
    """It is one of ours: what both say is numbered, so that it may be said again."""
    _posts: DuplicateFilter = attrs.field(factory=DuplicateFilter, init=False)
    _initialize: Id = attrs.field(default=None, init=False)
    _answer: bytes | None = attrs.field(default=None, init=False)
    _can_attach: bool = attrs.field(default=False, init=False)
    """Whether the agent takes up sessions that this connection does not have."""
    _answered: trio.Event = attrs.field(factory=trio.Event, init=False)
    _posting: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.mailboxes = Mailboxes(self.limits.buffered_bytes, self.limits.streams, self._is_open)

    async def run(self) -> None:
        """Sort what the agent says into the mailboxes, until the chain ends."""
        while lines := await self.client.lines.receive():
            self.client.record_activity()
            for line in lines:
                route = self.router.route(line)
                if not self._answered.is_set() and self._answers_initialize(route.message):
                    self._answer = line
                    self._answered.set()
                    continue
                self.mailboxes.of(route.session).put(line)
                if route.closed is not None:
                    self.mailboxes.closed(route.closed)
            await self.mailboxes.room()
        self.mailboxes.end()
        self._answered.set()

    async def initialize(self, posted: PostedMessage) -> bytes | None:
        """The chain's answer, with the connection's id in a result; None: it ended before."""
        assert posted.message is not None
        self._initialize = None if posted.message.id is UNSET else posted.message.id
        with self.client.attachment():
            try:
                await self.client.lines.send([posted.line])
            except ConnectionClosed:
                return None
            await self._answered.wait()
        if self._answer is None:
            return None
        self._can_attach = _can_attach(self._answer)
        return _with_id(self._answer, self.client.id)

    async def post(self, posted: PostedMessage, number: int | None = None) -> Refusal | None:
        """Pass a message on, or say why not. One that has a number is passed on once."""
        self.client.record_activity()
        if posted.session is not None and posted.needs_session and not self._has(posted.session):
            await self._refuse_session(posted)
            return None
        streaming = posted.session is not None and self.mailboxes.streaming(posted.session)
        with self.client.attachment():
            async with self._posting:
                is_new = number is None or self._posts.is_new(number)
                if is_new:
                    self.router.asked(posted, streaming=streaming)
                    if posted.session is not None and posted.method in SESSION_SETUP_METHODS:
                        self.mailboxes.opened(posted.session)
                try:
                    await self.client.lines.send([posted.line] if is_new else [])
                except ConnectionClosed:
                    return Refusal(500, "the chain has ended")
        return None

    def mailbox(self, session: str | None, received: int) -> Mailbox | Refusal:
        """The mailbox of a stream that is to be opened, or why it is not. `received` is what a
        client of ours has of the stream. Raises `SequenceError`.

        Of a session that is open and can have no stream, everything is told on the connection's.
        """
        if session is not None and not self._may_have(session):
            return Refusal(404, "Unknown Acp-Session-Id")
        known = self.mailboxes.known(session)
        if self.is_resumable and known is not None:
            known.resume_after(received)
        mailbox = self.mailboxes.for_stream(session)
        if mailbox is None:
            if session is None or not self._is_open(session):
                return Refusal(429, _TOO_MANY_STREAMS, (("retry-after", "1"),))
            self.router.streamless.add(session)
            self.mailboxes.move_to_connection(session)
            return Refusal(429, f"{_TOO_MANY_STREAMS}: this session is told of on the connection's")
        if mailbox.has_reader and not self.is_resumable:
            return Refusal(409, "this stream has a reader already")
        if self.is_resumable and known is None:
            mailbox.resume_after(received)
        return mailbox

    @asynccontextmanager
    async def reading(self, mailbox: Mailbox) -> AsyncIterator[None]:
        """The stream is open for as long as the block lasts, or until it is opened again."""
        self.mailboxes.add_reader(mailbox)
        try:
            while mailbox.has_reader:
                mailbox.reading.cancel()
                await mailbox.reader_left.wait()
            mailbox.has_reader, mailbox.reader_left = True, trio.Event()
            with self.client.attachment():
                try:
                    with trio.CancelScope() as mailbox.reading:
                        yield
                finally:
                    mailbox.has_reader = False
                    mailbox.reader_left.set()
        finally:
            self.mailboxes.remove_reader(mailbox)

    async def _refuse_session(self, posted: PostedMessage) -> None:
        """Say that this connection does not have the session: on its stream, since to a client a
        404 means that it has no connection any more (TypeScript SDK)."""
        if posted.is_request and posted.message is not None and posted.message.id is not UNSET:
            await self.mailboxes.room()
            error = encode_error(INVALID_PARAMS, "Unknown session", {"sessionId": posted.session})
            self.mailboxes.connection.put(b"".join(error_pieces(posted.message.id, error))[:-1])

    def _is_open(self, session: str | None) -> bool:
        return session is not None and self.client.has_session(session)

    def _has(self, session: str) -> bool:
        return self.client.has_session(session) or session in self.mailboxes.sessions

    def _may_have(self, session: str) -> bool:
        """A session that the agent may be asked to load has a stream before it is loaded (RFD,
        "Resume Session Flow"); where it cannot be asked, only what there is has one."""
        return self._has(session) or self._can_attach

    def _answers_initialize(self, message: Message | None) -> bool:
        return message is not None and message.method is UNSET and message.id == self._initialize


def _can_attach(line: bytes) -> bool:
    """Whether the answer to `initialize` says that the agent loads or resumes sessions."""
    message = decode_message(line)
    result = _members(message.result if message is not None else UNSET)
    if result.get("agentCapabilities", b"null") == b"null":
        # Version 2, where sessions can be resumed by every agent that has any.
        return result.get("capabilities", b"null") != b"null"
    can = _members(result["agentCapabilities"])
    return can.get("loadSession") == b"true" or any(
        f"session/{name}" in ATTACH_METHODS
        for name in _members(can.get("sessionCapabilities", UNSET))
    )


def _members(value: Payload | UnsetType) -> dict[str, bytes]:
    """Of an object; of anything else there are none."""
    try:
        return {} if value is UNSET else object_members(value)
    except ValueError:
        return {}


def _with_id(line: bytes, id: str) -> bytes:
    """The answer to `initialize`; a result tells the connection's id, too."""
    message = decode_message(line)
    if message is None or message.result is UNSET or bytes(message.result)[:1] != b"{":
        return line
    result = with_member(bytes(message.result), "connectionId", msgspec.json.encode(id))
    request_id = None if message.id is UNSET else message.id
    return b"".join(result_pieces(request_id, result))[:-1]


def is_error(line: bytes) -> bool:
    """Whether an answer is an error."""
    message = decode_message(line)
    return message is None or message.error is not UNSET
