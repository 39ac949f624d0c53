"""Detached client: takes the place of a disconnected client until it returns and resumes. Pure.

A client may lose its connection and return over another one; prompt turns continue meanwhile.
`undelivered_messages` finds, after the disconnect, the messages that were written but not read.
`DetachedClient` is a stage at the client's port. It keeps the requests that the client has not
answered, and from the disconnect until the returned client has resumed its sessions:

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

from msgspec import UNSET

from conductor.acp import asks_for_history, session_id_of
from conductor.acp.turns import Turns
from conductor.jsonrpc.codec import decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import join_members, object_members
from conductor.jsonrpc.messages import CANCEL, INTERNAL_ERROR, Message, Payload, encode_error
from conductor.routing.capabilities import supports_resume
from conductor.routing.link import Link
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.session_log import SetupRecord
from conductor.routing.stage import (
    EVERY,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StageMethod,
)

__all__ = ["MAX_QUEUED_BYTES", "DetachedClient", "undelivered_messages"]


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
_MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Bytes of unanswered requests that are kept; others cannot be sent again."""
_TOO_LARGE_TO_RESEND: Final = encode_error(
    INTERNAL_ERROR, "The client was disconnected, and this request was too large to be sent again"
)


class DetachedClient(Stage):
    """Lets a client be disconnected and return; `turns` are those of the client.

    `made_room` is called when the queue has become shorter.
    """

    name = "detached client"
    sent: frozenset[str] = EVERY
    received: frozenset[str] = EVERY

    def __init__(
        self, client: Link, turns: Turns[InFlightRequest], made_room: Callable[[], None]
    ) -> None:
        self.is_detached: bool = False
        """Whether the client is disconnected now."""
        self._link = client
        self._turns = turns
        self._made_room = made_room
        self._unanswered: dict[InFlightRequest, QueuedMessage | None] = {}
        """Open requests to the client; `None` for those over `_MAX_KEPT_BYTES`."""
        self._unanswered_size = 0
        self._initialize_result = b""
        """The raw `initialize` result of the client."""
        self._queue = MessageQueue()
        """It is also that of the link until the client has resumed its sessions."""
        self._awaits_first_message = False
        """Whether the returned client has not sent a message yet."""
        self._not_resumed: set[str] = set()
        """Sessions that the client has not resumed."""
        self._resuming: dict[InFlightRequest, tuple[str, bool]] = {}
        """Open requests that resume a session: session id, and whether its history is replayed."""

    def takes(self, kind: StageMethod, method: str) -> bool:
        is_always = kind in ("send_request", "receive_response")
        return is_always or (self._link.queue is not None and super().takes(kind, method))

    def detach(self, initialize_result: bytes, undelivered: Sequence[QueuedMessage]) -> None:
        """The client is disconnected, which has got this raw result of `initialize`; `undelivered`
        messages are queued first."""
        self._initialize_result = initialize_result
        self._link.queue = self._queue
        self.port.changed()
        self.is_detached = True
        self._resuming.clear()
        unanswered, self._unanswered, self._unanswered_size = self._unanswered, {}, 0
        resend = []
        known = {message.call for message in undelivered}
        for call, message in unanswered.items():
            if message is None:
                self.port.answer(self, call, None, _TOO_LARGE_TO_RESEND)
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
                self.port.answer(self, message.call, None, error)

        self._queue.release(answer)
        self._made_room()

    # -- from the client ---------------------------------------------------------------------------

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if self.is_detached:
            forward(call, method, params)  # sent before the disconnect
            return
        if method == "initialize":
            self.port.respond(call, self._initialize_result, None)
            self._link.initialized = True
            self._on_first_message()
            return
        session = session_id_of(params)
        if session not in self._not_resumed or session is None:
            self._on_first_message()
        elif not self._resume(call, method, params, session):
            return
        forward(call, method, params)
        self._stop_if_idle()

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if not self.is_detached:
            self._mark_resumed(session_id_of(params))
        forward(method, params)
        self._stop_if_idle()

    def _resume(
        self, call: InFlightRequest, method: str, params: Payload | None, session: str
    ) -> bool:
        """Handle a request that names a session not resumed yet; false if it was answered here."""
        replays = method == "session/load" or asks_for_history(params)
        if replays:
            self._resuming[call] = (session, True)
            self._not_resumed.discard(session)  # the replayed history is delivered at once
        elif method == "session/resume":
            record = self._link.session_log.sessions.get(session)
            turns = self._turns.sessions.get(session)
            has_open_prompt = turns is not None and any(turns.unanswered())
            if record is not None and (
                has_open_prompt or not supports_resume(self._initialize_result)
            ):
                self.port.respond(call, _resume_result(record), None)
                self._mark_resumed(session)
                return False
            self._resuming[call] = (session, False)
        else:
            self._mark_resumed(session)
        self._on_first_message()
        return True

    # -- to the client -----------------------------------------------------------------------------

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if self._is_deliverable(params):
            self._keep(QueuedMessage.copy_of(call, method, params))
            forward(call, method, params)
        else:
            self._hold(QueuedMessage.copy_of(call, method, params))

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if self._is_deliverable(params):
            forward(method, params)
        else:
            self._hold(QueuedMessage.copy_of(None, method, params))

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        forward(call, result, error)
        session, replayed = self._resuming.pop(call, (None, False))
        if session is None:
            return
        if result is None:
            self._not_resumed.add(session)
            return
        if replayed:
            self._drop_updates(session)
        self._mark_resumed(session)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if (message := self._unanswered.pop(call, None)) is not None:
            self._unanswered_size -= message.size
        forward(call, result, error)

    def _keep(self, request: QueuedMessage) -> None:
        """Keep a request to the client until it is answered."""
        assert request.call is not None
        fits = self._unanswered_size + request.size <= _MAX_KEPT_BYTES
        self._unanswered[request.call] = request if fits else None
        self._unanswered_size += request.size if fits else 0

    def _hold(self, message: QueuedMessage) -> None:
        queue = self._queue
        queue.append(message)
        returned = not self.is_detached and not self._awaits_first_message
        if queue.size > MAX_QUEUED_BYTES and returned:
            self._not_resumed.clear()
            self._release()

    def _is_deliverable(self, params: Payload | None) -> bool:
        if self.is_detached or self._awaits_first_message:
            return False
        return not self._not_resumed or session_id_of(params) not in self._not_resumed

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
            if self._is_deliverable(message.params) and not self._is_loading(message):
                if message.call is not None:
                    self._keep(message)
                self.port.send(self, message.call, message.method, message.params)
            else:
                self._queue.append(message)

        self._queue.release(deliver_or_keep)
        self._made_room()
        self._stop_if_idle()

    def _is_loading(self, message: QueuedMessage) -> bool:
        """Whether the session's history is being replayed, which has to be delivered first."""
        loading = [session for session, replays in self._resuming.values() if replays]
        return bool(loading) and session_id_of(message.params) in loading

    def _drop_updates(self, session: str) -> None:
        self._queue.remove(
            lambda each: each.method == "session/update" and session_id_of(each.params) == session
        )

    def _stop_if_idle(self) -> None:
        """Let all messages pass once nothing is queued or can be queued any more."""
        if (
            self.is_detached
            or self._awaits_first_message
            or self._queue
            or self._not_resumed
            or self._resuming
        ):
            return
        self._link.initialized = True
        self._link.queue = None
        self.port.changed()


def _resume_result(record: SetupRecord) -> bytes:
    """A `session/resume` result made of the result of the session's set-up."""
    try:
        result = object_members(record.result or b"{}")
    except ValueError:
        return b"{}"  # the result of `session/load` may be null
    result.pop("sessionId", None)
    return join_members(result)
