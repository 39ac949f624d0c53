"""Plays one side of a recorded conversation on a JSON-RPC connection: the agent or the client.

Messages are sent in the recorded order, each after what came before it in its track. A client has
one track: it acts by itself. An agent has a track for each request of the client: what it sent, and
waited for, because of that request; tracks are independent, so that several sessions can be
replayed at once. A client gives up waiting for a message when a later request or response of the
session has come, so that an agent that leaves one out does not stop the replay.

Messages of the peer correspond to recorded ones by kind, method and, for session updates, the kind
of the update: to the first one with an equal payload, else to the next one of the same session,
else to the next one. Ids and times are not compared. What differs is found by a comparison of both
conversations afterwards (`conductor.tracing.comparison`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.errors import RequestCancelled
from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    CANCEL,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    exception_to_error,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.peer import JsonRpcPeer
from conductor.proxy.conversion import encode
from conductor.testing.recording import Recording
from conductor.testing.replay_values import McpEnvelopes, ReplayValues, unwrapped
from conductor.testing.transcript import Transcript
from conductor.tracing.comparison import Normalizer
from conductor.tracing.conversation import End, RecordedMessage

__all__ = ["Player"]

_CANCEL_AFTER: Final = 0.3
"""Seconds after which a client cancels a request at the latest."""
_IDLE: Final = 2.0
"""Seconds that a client waits for a notification between two turns: agents send it at once."""
_MAX_COMPARED: Final = 32
"""Recorded messages that a live one is compared with."""
_PROMPT: Final = "session/prompt"
_BEGINNING: Final = -1
"""The track that no request begins."""


@attrs.define(eq=False)
class Player:
    """Plays the messages of `side` to the peer of `own_end`, and records in `transcript` what it
    sends. A request that the recording does not have gets -32601."""

    recording: Recording
    side: End
    own_end: JsonRpcPeer
    transcript: Transcript
    patience: float = math.inf
    """Seconds that a client waits for a message."""
    timeouts: list[str] = attrs.field(factory=list, init=False)
    """What the client waited for in vain, as lines of text."""
    messages: Sequence[RecordedMessage] = attrs.field(init=False)
    _values: ReplayValues = attrs.field(factory=ReplayValues, init=False)
    _mcp: McpEnvelopes = attrs.field(init=False)
    _requests: dict[object, int] = attrs.field(init=False)
    _responses: dict[object, int] = attrs.field(init=False)
    """Indices by id of the request."""
    _waiting: defaultdict[Hashable, list[int]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    """The requests and notifications of the peer that have not come yet, by key."""
    _counts: Counter[Hashable] = attrs.field(factory=Counter, init=False)
    _tracks: dict[int, deque[int]] = attrs.field(factory=dict, init=False)
    """Of an agent, by the request that begins it; `_begun` has those that were begun."""
    _begun: list[deque[int]] = attrs.field(factory=list, init=False)
    _arrived: set[int] = attrs.field(factory=set, init=False)
    """Messages of the peer that have come, and own responses whose request it has cancelled."""
    _received: dict[int, InFlightRequest] = attrs.field(factory=dict, init=False)
    """Requests of the peer, by index."""
    _sent: dict[InFlightRequest, int] = attrs.field(factory=dict, init=False)
    """Index of each own request that has no response yet."""
    _due: set[int] = attrs.field(factory=set, init=False)
    """Own responses whose turn has come."""
    _passed: list[tuple[int, str | None]] = attrs.field(factory=list, init=False)
    """Index and session of each request and response of the peer that has come."""
    _failed: set[int] = attrs.field(factory=set, init=False)
    """Own requests that were answered with an error."""
    _timed_out: bool = attrs.field(default=False, init=False)
    """Whether the last awaited message did not come: the next wait is shorter."""
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self.messages = self.recording.messages
        self._mcp = McpEnvelopes(self.messages)
        self._requests, self._responses = {}, {}
        for index, message in enumerate(self.messages):
            if message.kind == "request":
                self._requests[message.id] = index
            elif message.kind == "response":
                self._responses[message.id] = index
            if message.sender != self.side and message.kind != "response":
                self._waiting[message.key].append(index)
                self._counts[message.key] += 1

    def play_agent(self) -> None:
        """Play the agent from now on, on an open connection."""
        self.own_end.connection.receiver = self
        self._tracks = _agent_tracks(self.messages)
        self._begun.append(self._tracks[_BEGINNING])
        self._advance()

    async def play_client(self) -> None:
        """Play the whole conversation on an open connection; it ends early if a response does not
        come."""
        connection = self.own_end.connection
        connection.receiver = self
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(self._end_with_peer)
                for index, message in enumerate(self.messages):
                    if message.sender == self.side:
                        self._send(index)
                    elif index not in self._arrived and not await self._await(index):
                        return
        finally:
            connection.receiver = self.own_end

    # -- Receiver: what the peer sends -------------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.transcript.on_request(call, method, params)
        live = self._last_heard("request")
        if self.side == "agent":
            self._see_directory(live.payload)
        index = self._match(live)
        if index is None:
            known = self._counts[live.key]
            has = f"has {known} of them" if known else "has none"
            text = f"{live.method}: the recording {self.recording.name} {has}"
            self._respond(call, None, encode_error(METHOD_NOT_FOUND, text))
            return
        self._received[index] = call
        if self.side == "agent":
            self._begun.append(self._tracks[index])
        self._arrive(index)
        self._answer(self._responses.get(self.messages[index].id))

    def on_notification(self, method: str, params: Payload | None) -> None:
        self.transcript.on_notification(method, params)
        if method == CANCEL:
            self._cancel(self.transcript[-1].params)
        elif (index := self._match(self._last_heard("notification"))) is not None:
            self._arrive(index)

    def on_notifications(self, run: NotificationBatch) -> None:
        for each in run.params:
            self.on_notification(run.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self.transcript.on_response(call, result, error)
        asked = self._sent.pop(call)
        if error is not None:
            self._failed.add(asked)
        index = self._responses.get(self.messages[asked].id)
        if index is None:
            return
        if error is None and not self.messages[index].is_error:
            self._values.learn(self.messages[index].payload, self.transcript[-1].result)
        self._arrive(index)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        self.transcript.on_malformed(frame, call)
        if call is not None:
            error = encode_error(INTERNAL_ERROR, f"The answer is malformed: {frame.reason}")
            self.on_response(call, None, error)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Not used: responses to own requests arrive by `on_response`."""

    def _last_heard(self, kind: Literal["request", "notification"]) -> RecordedMessage:
        heard = self.transcript[-1]
        sender: End = "client" if self.side == "agent" else "agent"
        return unwrapped(kind, sender, heard.method, heard.params, None)

    def _match(self, live: RecordedMessage) -> int | None:
        """The recorded message that one of the peer corresponds to; it is not expected any more."""
        waiting = self._waiting.get(live.key)
        if not waiting:
            return None
        normalizer = Normalizer()
        recorded = self._values.recorded(live.payload)
        shown = normalizer.normalize(recorded)
        session = recorded.get("sessionId") if isinstance(recorded, dict) else None
        equal = (
            each
            for each in waiting[:_MAX_COMPARED]
            if normalizer.normalize(self.messages[each].payload) == shown
        )
        same = (each for each in waiting if self.messages[each].session == session)
        index = next(equal, None)
        if index is None:
            index = next(same, waiting[0])
        waiting.remove(index)
        self._values.learn(self.messages[index].payload, live.payload)
        return index

    def _arrive(self, index: int) -> None:
        self._arrived.add(index)
        message = self.messages[index]
        if message.kind != "notification":
            session = self.messages[self._requests[message.id]].session or message.session
            self._passed.append((index, session))
        self._timed_out = False
        self._changed.unpark_all()
        self._advance()

    def _cancel(self, params: Any) -> None:
        """A request that was cancelled in the recording, too, is answered as it was then."""
        id = params.get("requestId") if isinstance(params, dict) else None
        for asked, call in self._received.items():
            if call.source_id == id and not call.answered:
                index = self._responses.get(self.messages[asked].id)
                if index is None or not self.messages[index].cancelled:
                    self._respond(call, None, exception_to_error(RequestCancelled()))
                else:
                    self._arrived.add(index)
                    self._answer(index)
                    self._advance()

    def _see_directory(self, params: Any) -> None:
        """The first working directory of the live conversation replaces the recorded one."""
        match params:
            case {"cwd": str(live)} if self.recording.cwd is not None:
                self._values.set_directory(self.recording.cwd, live)

    # -- what is sent ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Send what is next in each track of the agent, up to a message of the peer that has not
        come."""
        for track in self._begun:
            while track and self._is_next(track[0]):
                index = track.popleft()
                if self.messages[index].sender == self.side:
                    self._send(index)

    def _is_next(self, index: int) -> bool:
        message = self.messages[index]
        return index in self._arrived or (message.sender == self.side and not message.cancelled)

    def _send(self, index: int) -> None:
        message = self.messages[index]
        if message.kind == "response":
            self._due.add(index)
            self._answer(index)
            return
        method, params = self._mcp.wrapped(message, self._values)
        if message.kind == "notification":
            self.own_end.notify(method, params)
            return
        call = InFlightRequest(method, self)
        self._sent[call] = index
        connection = self.own_end.connection
        connection.write(request_pieces(connection.open(call), method, encode(params)))

    def _answer(self, index: int | None) -> None:
        """Send an own response, if its turn and its request have come."""
        message = None if index is None else self.messages[index]
        if message is None or index not in self._due:
            return
        call = self._received.get(self._requests[message.id])
        if call is None or (message.cancelled and index not in self._arrived):
            return
        payload = encode(self._values.live(message.payload)) or b"null"
        if message.is_error:
            self._respond(call, None, payload)
        else:
            self._respond(call, payload, None)

    def _respond(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self.own_end.connection.respond(call, result, error)

    # -- waiting, as the client --------------------------------------------------------------------

    async def _await(self, index: int) -> bool:
        """Wait until the peer has sent a message, or has gone on without it. Before a response to a
        request that was cancelled, cancel the request. Returns whether to go on."""
        message = self.messages[index]
        is_response = message.kind == "response"
        asked = self._requests.get(message.id) if is_response else None
        if message.cancelled and asked is not None:
            # A conversation is without the cancellation itself: give the request time to arrive.
            await trio.sleep(min(message.ts - self.messages[asked].ts, _CANCEL_AFTER))
            for call in [call for call, sent in self._sent.items() if sent == asked]:
                self.own_end.notify(CANCEL, {"requestId": call.target_id})
        is_late = message.kind == "notification" and not self._sent  # sent between turns
        patience = min(self.patience, _IDLE) if is_late else self.patience
        if self._timed_out and not is_response:
            patience = 0
        with trio.move_on_after(patience) as scope:
            await self._wait_until(lambda: index in self._arrived or self._is_given_up(index))
        is_handshake = message.protocol == "acp" and message.method == "initialize"
        if is_handshake and asked in self._failed and not message.is_error:
            return False
        if scope.cancelled_caught and (not self._timed_out or is_response):
            self._timed_out = True
            if not is_late:
                self.timeouts.append(
                    f"#{message.n} {message.label} did not come within {self.patience:g} s"
                )
        return not (scope.cancelled_caught and is_response)

    def _is_given_up(self, index: int) -> bool:
        """Whether the client does not wait for a message: the agent is further in its session."""
        message = self.messages[index]
        return message.kind != "response" and any(
            later > index and message.session in (None, session) for later, session in self._passed
        )

    async def _wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until something is true, or the connection has ended."""
        while not is_true() and not self.own_end.ended.is_set():
            await self._changed.park()

    async def _end_with_peer(self) -> None:
        await self.own_end.ended.wait()
        self._changed.unpark_all()


def _agent_tracks(messages: Sequence[RecordedMessage]) -> dict[int, deque[int]]:
    """The tracks of the agent: indices of messages, by the index of the request that begins it."""
    found: dict[int, deque[int]] = {_BEGINNING: deque()}
    owners: dict[object, int] = {}
    """By id of a request of the agent: its track."""
    begun: dict[object, int] = {}
    """By id of a request of the client: its index."""
    sessions: dict[int, str | None] = {}
    """By index of a request of the client."""
    still_open: list[int] = []
    for index, message in enumerate(messages):
        if message.kind == "request" and message.sender == "client":
            found[index] = deque()
            begun[message.id], sessions[index] = index, message.session
            still_open.append(index)
            continue
        if message.kind == "response" and message.sender == "agent":
            owner = begun[message.id]
            still_open.remove(owner)
            sessions[owner] = sessions[owner] or message.session
        elif message.kind == "response":
            owner = owners[message.id]
        else:
            owner = _owner(message, messages, still_open, sessions)
            owners[message.id] = owner
        found[owner].append(index)
    return found


def _owner(
    message: RecordedMessage,
    messages: Sequence[RecordedMessage],
    still_open: Sequence[int],
    sessions: dict[int, str | None],
) -> int:
    """The client's request that a message belongs to: the open one of its session, or the last."""
    session = message.session
    candidates = [
        [each for each in still_open if sessions[each] == session and session is not None],
        [each for each in still_open if sessions[each] is None],
        [each for each in sessions if sessions[each] == session and session is not None],
        list(still_open),
        list(sessions),
    ]
    for some in candidates:
        if some:
            prompts = [each for each in some if messages[each].method == _PROMPT]
            return (prompts if some is candidates[0] and prompts else some)[-1]
    return _BEGINNING
