"""Detached client: takes the place of a disconnected client until it returns and resumes. Pure.

A client may lose its connection and return over another one; prompt turns continue meanwhile.
`UnansweredRequests` keeps the requests that the client has not answered, and `undelivered_messages`
finds, after the disconnect, the messages that were written but not read. `DetachedClient` is
inserted between the client's port and the first component's port, from the disconnect until the
returned client has resumed its sessions:

- Messages to the client are queued in order. Those without a session are delivered after the
  client's first message, those of a session after the client's first message for that session.
- Requests that the client had received but not answered are sent again. Responses to requests of
  the lost connection are dropped.
- `initialize` is answered with the recorded result. `session/resume` goes to the agent if it
  supports that and no prompt of the session is open; otherwise it is answered from the session log,
  since the session is still open. `session/load` replays the history, so queued updates of the
  session are dropped.

A client that resumes nothing must not fill the queue: beyond `MAX_QUEUED_BYTES`, all queued
messages are delivered to the returned client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
from msgspec import UNSET

from conductor.acp import session_id_of
from conductor.acp.turns import Turns
from conductor.jsonrpc.codec import decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import join_members, member_at, object_members
from conductor.jsonrpc.messages import CANCEL, INTERNAL_ERROR, Message, Payload, encode_error
from conductor.routing.capabilities import supports_resume
from conductor.routing.link import Link
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.observers import LinkObserver
from conductor.routing.port import Port, connect_ports
from conductor.routing.session_log import SetupRecord

__all__ = ["MAX_QUEUED_BYTES", "DetachedClient", "UnansweredRequests", "undelivered_messages"]


@attrs.define(eq=False)
class UnansweredRequests(LinkObserver):
    """Open requests to the client; an observer of those sent to it.

    Keeps requests of at most `max_bytes` bytes in total; others cannot be sent again.
    """

    turns: Turns[InFlightRequest]
    """The turns of the client."""
    max_bytes: int = 8 * 1024 * 1024
    _requests: dict[InFlightRequest, QueuedMessage | None] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)

    def take_all(self) -> list[tuple[InFlightRequest, QueuedMessage | None]]:
        """Remove and return the unanswered requests in order; `None` for one that was not kept."""
        requests, self._requests, self._size = self._requests, {}, 0
        return list(requests.items())

    def has_open_prompt(self, session: str) -> bool:
        """Whether a prompt of this session is unanswered."""
        turns = self.turns.sessions.get(session)
        return turns is not None and any(turns.unanswered())

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        message = QueuedMessage.copy_of(call, method, params)
        fits = self._size + message.size <= self.max_bytes
        self._requests[call] = message if fits else None
        self._size += message.size if fits else 0

    def on_response(self, call: InFlightRequest) -> None:
        message = self._requests.pop(call, None)
        self._size -= 0 if message is None else message.size


def undelivered_messages(connection: Connection, unread: bytes) -> list[QueuedMessage]:
    """The notifications and open requests that a disconnected client has not received, in order.

    `unread` is the end of what was written to its transport; the write buffer of `connection` is
    emptied. Responses and cancellations are left out: they belong to the lost connection.
    """
    data = bytearray(unread)

    def collect(pieces: Sequence[bytes | memoryview]) -> int:
        before = len(data)
        data.extend(b"".join(pieces))
        return len(data) - before

    connection.write_buffer.flush(collect)
    found = []
    for line in bytes(data).split(b"\n"):
        message = decode(line) if line else None
        if type(message) is not Message or message.method is UNSET or message.method == CANCEL:
            continue
        call = None if message.id is UNSET else connection.sent.get(message.id)
        if message.id is UNSET or call is not None:
            params = None if message.params is UNSET else bytes(message.params)
            found.append(QueuedMessage(call, message.method, params))
    return found


MAX_QUEUED_BYTES: Final = 1024 * 1024
"""Bytes that may be queued for sessions that a returned client has not resumed."""
_TOO_LARGE_TO_RESEND: Final = encode_error(
    INTERNAL_ERROR, "The client was disconnected, and this request was too large to be sent again"
)


class DetachedClient(Port):
    """Queue and session bookkeeping between the client and the first component, while `active`.

    `initialized` is the raw `initialize` result of the client. `made_room` is called when the queue
    has become shorter.
    """

    def __init__(
        self,
        client: Link,
        client_port: Port,
        unanswered: UnansweredRequests,
        initialized: bytes,
        made_room: Callable[[], None],
    ) -> None:
        super().__init__()
        self.active: bool = False
        self.is_detached: bool = False
        """Whether the client is disconnected now."""
        self._link = client
        self._client = client_port
        self._open_requests = unanswered
        self._initialize_result = initialized
        self._made_room = made_room
        self.chain_port: Port = _DetachedChainPort(self)
        """The neighbour of the first component's client port."""
        self._queue = MessageQueue()
        self._awaits_first_message = False
        """Whether the returned client has not sent a message yet."""
        self._not_resumed: set[str] = set()
        """Sessions that the client has not resumed."""
        self._resuming: dict[InFlightRequest, tuple[str, bool]] = {}
        """Open requests that resume a session: session id, and whether its history is replayed."""

    def detach(self, undelivered: Sequence[QueuedMessage] = ()) -> None:
        """The client is disconnected; `undelivered` messages are queued first."""
        if not self.active:
            connect_ports(self.chain_port, self._client.neighbour)
            connect_ports(self._client, self)
            self.active = True
        self.is_detached = True
        self._resuming.clear()
        resend = []
        known = {message.call for message in undelivered}
        for call, message in self._open_requests.take_all():
            if message is None:
                self._first.respond(call, None, _TOO_LARGE_TO_RESEND)
            elif call not in known:
                resend.append(message)
        resend += [each for each in undelivered if each.call is None or not each.call.answered]
        self._queue.prepend(resend)

    def reattach(self) -> None:
        """The client has returned; its link has a new connection."""
        self.is_detached, self._awaits_first_message = False, True
        self._link.initialized = False
        self._not_resumed = set(self._link.session_log.sessions)

    def end(self, error: bytes) -> None:
        """The client will not return: answer queued requests with the wire error `error`."""

        def answer(message: QueuedMessage) -> None:
            if message.call is not None:
                self._first.respond(message.call, None, error)

        self._queue.release(answer)
        self._made_room()

    @property
    def size(self) -> int:
        """Bytes that wait for the client."""
        return self._queue.size

    @property
    def _first(self) -> Port:
        return self.chain_port.neighbour

    # -- toward the agent --------------------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self.is_detached:
            self._first.request(call, method, params)  # sent before the disconnect
            return
        if method == "initialize":
            self._client.respond(call, self._initialize_result, None)
            self._link.initialized = True
            self._on_first_message()
            return
        session = session_id_of(params)
        if session not in self._not_resumed or session is None:
            self._on_first_message()
        elif not self._resume(call, method, params, session):
            return
        self._first.request(call, method, params)
        self._deactivate_if_idle()

    def notify(self, method: str, params: Payload | None) -> None:
        if not self.is_detached:
            self._mark_resumed(session_id_of(params))
        self._first.notify(method, params)
        self._deactivate_if_idle()

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._first.respond(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        call.cancel()

    def backlog(self) -> int:
        return self._first.backlog()

    def _resume(
        self, call: InFlightRequest, method: str, params: Payload | None, session: str
    ) -> bool:
        """Handle a request that names a session not resumed yet; false if it was answered here."""
        replays = method == "session/load" or _asks_for_history(params)
        if replays:
            self._resuming[call] = (session, True)
            self._not_resumed.discard(session)  # the replayed history is delivered at once
        elif method == "session/resume":
            record = self._link.session_log.sessions.get(session)
            if record is not None and (
                not supports_resume(self._initialize_result)
                or self._open_requests.has_open_prompt(session)
            ):
                self._client.respond(call, _resume_result(record), None)
                self._mark_resumed(session)
                return False
            self._resuming[call] = (session, False)
        else:
            self._mark_resumed(session)
        self._on_first_message()
        return True

    # -- toward the client -------------------------------------------------------------------------

    def deliver(self, message: QueuedMessage) -> None:
        """Deliver a message to the client, or queue it."""
        if self._is_deliverable(message):
            message.send_to(self._client)
            return
        self._queue.append(message)
        if self.size > MAX_QUEUED_BYTES and not self.is_detached and not self._awaits_first_message:
            self._not_resumed.clear()
            self._release()

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self._client.respond(call, result, error)
        session, replayed = self._resuming.pop(call, (None, False))
        if session is None:
            return
        if result is None:
            self._not_resumed.add(session)
            return
        if replayed:
            self._drop_updates(session)
        self._mark_resumed(session)

    def _is_deliverable(self, message: QueuedMessage) -> bool:
        if self.is_detached or self._awaits_first_message:
            return False
        return not self._not_resumed or session_id_of(message.params) not in self._not_resumed

    def _on_first_message(self) -> None:
        """Deliver what belongs to no session, or to a resumed one."""
        if self._awaits_first_message:
            self._awaits_first_message = False
            self._release()

    def _mark_resumed(self, session: str | None) -> None:
        if session is not None:
            self._not_resumed.discard(session)
        self._awaits_first_message = False
        self._release()

    def _release(self) -> None:
        """Deliver each message that may be delivered by now; the others stay in the queue."""

        def deliver_or_keep(message: QueuedMessage) -> None:
            if self._is_deliverable(message) and not self._is_loading(message):
                message.send_to(self._client)
            else:
                self._queue.append(message)

        self._queue.release(deliver_or_keep)
        self._made_room()
        self._deactivate_if_idle()

    def _is_loading(self, message: QueuedMessage) -> bool:
        """Whether the session's history is being replayed, which has to be delivered first."""
        loading = [session for session, replays in self._resuming.values() if replays]
        return bool(loading) and session_id_of(message.params) in loading

    def _drop_updates(self, session: str) -> None:
        self._queue.remove(
            lambda each: each.method == "session/update" and session_id_of(each.params) == session
        )

    def _deactivate_if_idle(self) -> None:
        """Connect client and chain directly once nothing is queued or can be queued any more."""
        if (
            self.is_detached
            or self._awaits_first_message
            or self._queue
            or self._not_resumed
            or self._resuming
        ):
            return
        if self.active:
            self.active = False
            self._link.initialized = True
            connect_ports(self._client, self._first)


def _asks_for_history(params: Payload | None) -> bool:
    """Whether a `session/resume` of version 2 asks for history."""
    return member_at(params or b"", "replayFrom") not in (None, b"null")


def _resume_result(record: SetupRecord) -> bytes:
    """A `session/resume` result made of the result of the session's set-up."""
    try:
        result = object_members(record.result or b"{}")
    except ValueError:
        return b"{}"  # the result of `session/load` may be null
    result.pop("sessionId", None)
    return join_members(result)


class _DetachedChainPort(Port):
    """The neighbour of the first component's client port."""

    __slots__ = ("_detached",)

    def __init__(self, detached: DetachedClient) -> None:
        super().__init__()
        self._detached = detached

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._detached.deliver(QueuedMessage.copy_of(call, method, params))

    def notify(self, method: str, params: Payload | None) -> None:
        self._detached.deliver(QueuedMessage.copy_of(None, method, params))

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._detached.on_response(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        call.cancel()

    def backlog(self) -> int:
        return self._detached.size
