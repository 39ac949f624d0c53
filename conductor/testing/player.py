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
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

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
from conductor.testing.replay_values import MCP_MESSAGE, McpEnvelopes, ReplayValues
from conductor.testing.transcript import Heard, Transcript
from conductor.tracing.comparison import Normalizer
from conductor.tracing.conversation import End, at_end, message_label, session_in
from conductor.tracing.links import Message
from conductor.tracing.records import (
    Direction,
    NotificationRecord,
    RequestRecord,
    ResponseRecord,
)

__all__ = ["Player", "unwrapped"]

_CANCEL_AFTER: Final = 0.3
"""Seconds after which a client cancels a request at the latest."""
_IDLE: Final = 2.0
"""Seconds that a client waits for a notification between two turns: agents send it at once."""
_MAX_COMPARED: Final = 32
"""Recorded messages that a live one is compared with."""
_PROMPT: Final = "session/prompt"
_SERVERS: Final = ("serverId", "connectionId", "acpId")
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
    messages: Sequence[Message] = attrs.field(init=False)
    _own: Direction = attrs.field(init=False)
    """The direction of own messages."""
    _values: ReplayValues = attrs.field(factory=ReplayValues, init=False)
    _mcp: McpEnvelopes = attrs.field(init=False)
    _requests: dict[int, int] = attrs.field(factory=dict, init=False)
    _responses: dict[int, int] = attrs.field(factory=dict, init=False)
    """Indices by the number of the request."""
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
        self._own = "client" if self.side == "agent" else "agent"
        self._mcp = McpEnvelopes(self.messages)
        for index, message in enumerate(self.messages):
            if isinstance(message, RequestRecord):
                self._requests[message.n] = index
            if isinstance(message, ResponseRecord):
                self._responses[message.request] = index
            elif message.toward != self._own:
                self._waiting[_key(message)].append(index)
                self._counts[_key(message)] += 1

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
                    if message.toward == self._own:
                        self._send(index)
                    elif index not in self._arrived and not await self._await(index):
                        return
        finally:
            connection.receiver = self.own_end

    # -- Receiver: what the peer sends -------------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.transcript.on_request(call, method, params)
        live = self._last_heard()
        if self.side == "agent":
            self._see_directory(live.content)
        index = self._match(live)
        if index is None:
            known = self._counts[_key(live)]
            has = f"has {known} of them" if known else "has none"
            text = f"{live.method}: the recording {self.recording.name} {has}"
            self._respond(call, None, encode_error(METHOD_NOT_FOUND, text))
            return
        self._received[index] = call
        if self.side == "agent":
            self._begun.append(self._tracks[index])
        self._arrive(index)
        self._answer(self._responses.get(self.messages[index].n))

    def on_notification(self, method: str, params: Payload | None) -> None:
        self.transcript.on_notification(method, params)
        if method == CANCEL:
            self._cancel(self.transcript[-1].params)
        elif (index := self._match(self._last_heard())) is not None:
            self._arrive(index)

    def on_notifications(self, run: NotificationBatch) -> None:
        for each in run.params:
            self.on_notification(run.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self.transcript.on_response(call, result, error)
        asked = self._sent.pop(call, None)
        if asked is None:  # sent before the play
            return
        if error is not None:
            self._failed.add(asked)
        index = self._responses.get(self.messages[asked].n)
        if index is None:
            return
        recorded = self._response(index)
        if error is None and not recorded.is_error:
            self._values.learn(recorded.payload, self.transcript[-1].result)
        self._arrive(index)

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        self.transcript.on_malformed(frame, call)
        if call is not None:
            error = encode_error(INTERNAL_ERROR, f"The answer is malformed: {frame.reason}")
            self.on_response(call, None, error)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Not used: responses to own requests arrive by `on_response`."""

    def _last_heard(self) -> Message:
        toward: Direction = "agent" if self.side == "agent" else "client"
        return unwrapped(at_end(self.side, toward), self.transcript[-1])

    def _response(self, index: int) -> ResponseRecord:
        message = self.messages[index]
        assert isinstance(message, ResponseRecord)
        return message

    def _match(self, live: Message) -> int | None:
        """The recorded message that one of the peer corresponds to; it is not expected any more."""
        waiting = self._waiting.get(_key(live))
        if not waiting:
            return None
        normalizer = Normalizer()
        recorded = self._values.recorded(live.content)
        shown, session = normalizer.normalize(recorded), session_in(recorded)
        equal = (
            each
            for each in waiting[:_MAX_COMPARED]
            if normalizer.normalize(self.messages[each].content) == shown
        )
        same = (each for each in waiting if self.messages[each].session == session)
        index = next(equal, None)
        if index is None:
            index = next(same, waiting[0])
        waiting.remove(index)
        self._values.learn(self.messages[index].content, live.content)
        return index

    def _arrive(self, index: int) -> None:
        self._arrived.add(index)
        message = self.messages[index]
        if not isinstance(message, NotificationRecord):
            asked = message.request if isinstance(message, ResponseRecord) else message.n
            session = self.messages[self._requests[asked]].session or message.session
            self._passed.append((index, session))
        self._timed_out = False
        self._changed.unpark_all()
        self._advance()

    def _cancel(self, params: Any) -> None:
        """A request that was cancelled in the recording, too, is answered as it was then."""
        id = params.get("requestId") if isinstance(params, dict) else None
        for asked, call in self._received.items():
            if call.source_id == id and not call.answered:
                index = self._responses.get(self.messages[asked].n)
                if index is None or not self._response(index).cancelled:
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
                if self.messages[index].toward == self._own:
                    self._send(index)

    def _is_next(self, index: int) -> bool:
        message = self.messages[index]
        is_held = isinstance(message, ResponseRecord) and message.cancelled
        return index in self._arrived or (message.toward == self._own and not is_held)

    def _send(self, index: int) -> None:
        message = self.messages[index]
        if isinstance(message, ResponseRecord):
            self._due.add(index)
            self._answer(index)
            return
        method, params = self._mcp.wrapped(message, self._values)
        if isinstance(message, NotificationRecord):
            self.own_end.notify(method, params)
            return
        call = InFlightRequest(method, self)
        self._sent[call] = index
        connection = self.own_end.connection
        connection.write(request_pieces(connection.open(call), method, encode(params)))

    def _answer(self, index: int | None) -> None:
        """Send an own response, if its turn and its request have come."""
        if index is None or index not in self._due:
            return
        message = self._response(index)
        call = self._received.get(self._requests[message.request])
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
        """Wait until the peer has sent a message; whether to go on."""
        message = self.messages[index]
        if isinstance(message, ResponseRecord):
            return await self._await_response(index, message)
        is_late = isinstance(message, NotificationRecord) and not self._sent  # sent between turns
        patience = min(self.patience, _IDLE) if is_late else self.patience
        with trio.move_on_after(0 if self._timed_out else patience) as scope:
            await self._wait_until(lambda: index in self._arrived or self._is_given_up(index))
        if scope.cancelled_caught and not self._timed_out:
            self._timed_out = True
            if not is_late:
                self._report(message)
        return True

    async def _await_response(self, index: int, response: ResponseRecord) -> bool:
        """Wait for a response. If its request was cancelled, cancel it: a conversation is without
        the cancellation itself."""
        asked = self._requests[response.request]
        if response.cancelled:
            seconds = response.ts - self.messages[asked].ts
            await trio.sleep(min(seconds, _CANCEL_AFTER))  # give the request time to arrive
            for call in [call for call, sent in self._sent.items() if sent == asked]:
                self.own_end.notify(CANCEL, {"requestId": call.target_id})
        with trio.move_on_after(self.patience) as scope:
            await self._wait_until(lambda: index in self._arrived)
        if scope.cancelled_caught:
            self._timed_out = True
            self._report(response)
        is_refused = asked in self._failed and not response.is_error
        return not (scope.cancelled_caught or (is_refused and response.method == "initialize"))

    def _report(self, message: Message) -> None:
        label = message_label(message)
        self.timeouts.append(f"#{message.n} {label} did not come within {self.patience:g} s")

    def _is_given_up(self, index: int) -> bool:
        """Whether the client does not wait for a message: the agent is further in its session."""
        own = self.messages[index].session
        return any(later > index and own in (None, session) for later, session in self._passed)

    async def _wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until something is true, or the connection has ended."""
        while not is_true() and not self.own_end.ended.is_set():
            await self._changed.park()

    async def _end_with_peer(self) -> None:
        await self.own_end.ended.wait()
        self._changed.unpark_all()


def unwrapped(places: Mapping[str, Any], heard: Heard, n: int = 0) -> Message:
    """A live message as a recording has it: that in `mcp/message`, others as they are.

    `places` are those of `at_end`.
    """
    common: dict[str, Any] = {**places, "ts": 0.0, "n": n}
    if heard.kind == "answer":
        is_error = heard.error is not None
        content = heard.error if is_error else heard.result
        answer: dict[str, Any] = {
            "is_error": is_error,
            "method": heard.method,
            "session": session_in(content),
        }
        return ResponseRecord(**common, **answer, id=n, payload=content)
    method, params, server = heard.method, heard.params, None
    if method == MCP_MESSAGE and isinstance(params, dict):
        server = str(next((params[name] for name in _SERVERS if name in params), ""))
        method, params = str(params.get("method", "")), params.get("params")
    common |= {"method": method, "params": params, "session": session_in(params)}
    common |= {"protocol": "acp" if server is None else "mcp", "mcp_server": server}
    if heard.kind == "request":
        return RequestRecord(**common, id=n)
    return NotificationRecord(**common)


def _key(message: Message) -> Hashable:
    """Equal for messages that correspond in two conversations."""
    kind = message.update_kind if isinstance(message, NotificationRecord) else None
    protocol = "" if isinstance(message, ResponseRecord) else message.protocol
    return type(message).__name__, message.method, kind, protocol


def _agent_tracks(messages: Sequence[Message]) -> dict[int, deque[int]]:
    """The tracks of the agent: indices of messages, by the index of the request that begins it."""
    found: dict[int, deque[int]] = {_BEGINNING: deque()}
    owners: dict[int, int] = {}
    """By number of a request of the agent: its track."""
    begun: dict[int, int] = {}
    """By number of a request of the client: its index."""
    sessions: dict[int, str | None] = {}
    """By index of a request of the client."""
    still_open: list[int] = []
    for index, message in enumerate(messages):
        is_of_client = message.toward == "agent"
        if isinstance(message, RequestRecord) and is_of_client:
            found[index] = deque()
            begun[message.n], sessions[index] = index, message.session
            still_open.append(index)
            continue
        if isinstance(message, ResponseRecord) and is_of_client:
            owner = owners[message.request]
        elif isinstance(message, ResponseRecord):
            owner = begun[message.request]
            still_open.remove(owner)
            sessions[owner] = sessions[owner] or message.session
        else:
            owner = _owner(message, messages, still_open, sessions)
            owners[message.n] = owner
        found[owner].append(index)
    return found


def _owner(
    message: Message,
    messages: Sequence[Message],
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
