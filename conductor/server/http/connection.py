"""Streamable HTTP connection of one client: POSTs in, long-lived event streams out.

One task reads the messages of the chain and puts each into the mailbox chosen by `StreamRouter`; an
event stream reads the mailbox. Only `initialize` is answered in the response to its POST, with the
connection's id added to the result.
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
from conductor.jsonrpc.codec import decode_message
from conductor.jsonrpc.json_object import object_members, with_member
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
    """State of a `RemoteClient` that uses HTTP."""

    client: RemoteClient
    limits: ServerLimits
    mailboxes: Mailboxes = attrs.field(init=False)
    router: StreamRouter = attrs.field(factory=StreamRouter)
    is_resumable: bool = False
    """The client is a conductor: POSTs and events are numbered and can be repeated."""
    _posts: DuplicateFilter = attrs.field(factory=DuplicateFilter, init=False)
    _initialize: Id = attrs.field(default=None, init=False)
    _answer: bytes | None = attrs.field(default=None, init=False)
    _can_attach: bool = attrs.field(default=False, init=False)
    """Whether the agent can load or resume sessions."""
    _answered: trio.Event = attrs.field(factory=trio.Event, init=False)
    _posting: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.mailboxes = Mailboxes(self.limits.buffered_bytes, self.limits.streams, self._is_open)
        self.router.has_stream = self.mailboxes.sessions.__contains__
        self.router.is_known = lambda each: self._is_known(each) or self.mailboxes.is_closed(each)

    async def run(self) -> None:
        """Route the messages of the chain to the mailboxes, until EOF."""
        while lines := await self.client.lines.receive():
            self.client.record_activity()
            for line in lines:
                route = self.router.route(line)
                if not self._answered.is_set() and self._answers_initialize(route.message):
                    self._answer = line
                    self._answered.set()
                    continue
                self.mailboxes.mailbox_for(route.session).put(line)
                if route.closed is not None:
                    self.mailboxes.closed(route.closed)
            await self.mailboxes.wait_for_space()
        self.mailboxes.end()
        self.router.is_known = lambda _: True  # it keeps the client in a reference cycle
        self._answered.set()

    async def initialize(self, posted: PostedMessage) -> bytes | None:
        """The response line with the connection's id in the result; `None`: the chain has ended."""
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
        """Forward a message to the chain; one with a known number is dropped."""
        self.client.record_activity()
        if posted.session is not None and posted.needs_session and not self._has(posted.session):
            await self._refuse_session(posted)
            return None
        streaming = posted.session is not None and self.mailboxes.streaming(posted.session)
        with self.client.attachment():
            async with self._posting:
                is_new = number is None or self._posts.is_new(number)
                if is_new:
                    self.router.record_request(posted, streaming=streaming)
                    if posted.session is not None and posted.method in SESSION_SETUP_METHODS:
                        self.mailboxes.opened(posted.session)
                try:
                    await self.client.lines.send([posted.line] if is_new else [])
                except ConnectionClosed:
                    return Refusal(500, "the chain has ended")
        return None

    def mailbox(self, session: str | None, received: int) -> Mailbox | Refusal:
        """The mailbox for a new stream, or a refusal. Raises `SequenceError`.

        `received`: number of the last event that a conductor has of this stream. Beyond the limit
        of streams, messages of an open session move to the connection's stream.
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
            return Refusal(429, f"{_TOO_MANY_STREAMS}: its messages are on the connection's stream")
        if mailbox.has_reader and not self.is_resumable:
            return Refusal(409, "this stream has a reader already")
        if self.is_resumable and known is None:
            mailbox.resume_after(received)
        return mailbox

    @asynccontextmanager
    async def reading(self, mailbox: Mailbox) -> AsyncIterator[None]:
        """Read a mailbox during the block, which a newer stream cancels."""
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
        """Answer a request for an unknown session on the connection's stream: the TypeScript SDK
        takes a 404 as the end of the connection."""
        if posted.is_request and posted.message is not None and posted.message.id is not UNSET:
            await self.mailboxes.wait_for_space()
            error = encode_error(INVALID_PARAMS, "Unknown session", {"sessionId": posted.session})
            self.mailboxes.connection.put(b"".join(error_pieces(posted.message.id, error))[:-1])

    def _is_open(self, session: str | None) -> bool:
        return session is not None and self.client.has_session(session)

    def _is_known(self, session: str) -> bool:
        return self.client.has_session(session) or session in self.mailboxes.sessions

    def _has(self, session: str) -> bool:
        return (
            self._is_known(session)
            or session in self.router.parents
            or session in self.router.unannounced
        )

    def _may_have(self, session: str) -> bool:
        """Whether a session may have a stream: it is open, or the agent can load sessions. A stream
        may be opened before `session/load` (RFD, "Resume Session Flow")."""
        return self._has(session) or self._can_attach

    def _answers_initialize(self, message: Message | None) -> bool:
        return message is not None and message.method is UNSET and message.id == self._initialize


def _can_attach(line: bytes) -> bool:
    """Whether the capabilities in the result of `initialize` include load or resume."""
    message = decode_message(line)
    result = _members(message.result if message is not None else UNSET)
    if result.get("agentCapabilities", b"null") == b"null":
        # Version 2: every agent with sessions can resume them.
        return result.get("capabilities", b"null") != b"null"
    can = _members(result["agentCapabilities"])
    return can.get("loadSession") == b"true" or any(
        f"session/{name}" in ATTACH_METHODS
        for name in _members(can.get("sessionCapabilities", UNSET))
    )


def _members(value: Payload | UnsetType) -> dict[str, bytes]:
    """Members of an object as raw JSON; empty for any other value."""
    try:
        return {} if value is UNSET else object_members(value)
    except ValueError:
        return {}


def _with_id(line: bytes, id: str) -> bytes:
    """Add `connectionId` to the result of `initialize`; an error stays unchanged."""
    message = decode_message(line)
    if message is None or message.result is UNSET or bytes(message.result)[:1] != b"{":
        return line
    result = with_member(message.result, ["connectionId"], msgspec.json.encode(id))
    request_id = None if message.id is UNSET else message.id
    return b"".join(result_pieces(request_id, result))[:-1]


def is_error(line: bytes) -> bool:
    """Whether a response line is an error or invalid."""
    message = decode_message(line)
    return message is None or message.error is not UNSET
