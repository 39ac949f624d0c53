"""Plays one side of a recorded conversation on a JSON-RPC connection: the agent or the client.

Messages are sent in the recorded order, each after what came before it in its track. A client has
one track: it acts by itself. An agent has a track for each request of the client: what it sent, and
waited for, because of that request; tracks are independent, so that several sessions can be
replayed at once. A client gives up waiting for a message when a later request or response of the
session has come, so that an agent that leaves one out does not stop the replay.

Messages of the peer correspond to recorded ones by kind, method and, for session updates, the kind
of the update: to the first one with an equal payload, else to the next one of the same session,
else to the next one. Ids and times are not compared. Differences in the peer's behaviour are
reported (`Deviation`), and the replay goes on.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import trio

from conductor.error_codes import INTERNAL_ERROR
from conductor.errors import ConnectionClosed, RequestError
from conductor.jsonrpc.messages import CANCEL, METHOD_NOT_FOUND
from conductor.peer import JsonRpcPeer
from conductor.testing.replay_values import McpEnvelopes, ReplayValues, unwrapped
from conductor.tracing.comparison import Normalizer
from conductor.tracing.conversation import End, RecordedMessage

__all__ = ["BEGINNING", "Deviation", "ExpectedMessages", "Player", "tracks"]

_CANCEL_AFTER: Final = 0.3
"""Seconds after which a client cancels a request at the latest."""
_IDLE: Final = 2.0
"""Seconds that a client waits for a notification between two turns: agents send it at once."""
_MAX_COMPARED: Final = 32
"""Recorded messages that a live one is compared with."""
_PROMPT: Final = "session/prompt"
BEGINNING: Final = -1
"""The track that no request begins."""


@attrs.frozen
class Deviation:
    """A difference between the peer's behaviour and the recording."""

    text: str
    """Description without the payloads."""
    recorded: RecordedMessage | None = None
    live: Any = None
    """The payload that came instead, with the ids of the recording."""
    is_timeout: bool = False
    """Whether the peer sent nothing in time."""


def _nothing() -> None:
    pass


class _NoResponse(Exception):
    """A response did not come in time, or the agent did not start."""


def _ignore(deviation: Deviation) -> None:
    pass


@attrs.define(eq=False)
class Player:
    """Plays the messages of `side` to the peer that is given to `start`."""

    messages: Sequence[RecordedMessage]
    side: End
    speed: float | None = None
    """Messages are sent at the recorded pace, this many times faster; `None`: at once."""
    patience: float = math.inf
    """Seconds to wait for a message of the peer."""
    name: str = ""
    """Name of the recording."""
    ignored: Sequence[str] = ()
    """Names of members that may differ."""
    on_deviation: Callable[[Deviation], None] = _ignore
    values: ReplayValues = attrs.field(factory=ReplayValues, init=False)
    peer: JsonRpcPeer = attrs.field(init=False)
    _mcp: McpEnvelopes = attrs.field(init=False)
    _expected: ExpectedMessages = attrs.field(init=False)
    _tracks: dict[int, list[int]] = attrs.field(init=False)
    _requests: dict[object, int] = attrs.field(init=False)
    _responses: dict[object, int] = attrs.field(init=False)
    """Indices by id of the request."""
    _arrived: set[int] = attrs.field(factory=set, init=False)
    _due: defaultdict[int, trio.Event] = attrs.field(
        factory=lambda: defaultdict(trio.Event), init=False
    )
    """By index of an own response: set when it is its turn."""
    _written: defaultdict[int, trio.Event] = attrs.field(
        factory=lambda: defaultdict(trio.Event), init=False
    )
    """By index of an own response: set when the handler returns it."""
    _live_ids: dict[object, int | str | None] = attrs.field(factory=dict, init=False)
    """Ids of sent requests, by their recorded id."""
    _passed: list[tuple[int, str | None]] = attrs.field(factory=list, init=False)
    """Index and session of each request and response of the peer that has come."""
    _failed: set[object] = attrs.field(factory=set, init=False)
    """Ids of requests that were answered with an error."""
    _timed_out: bool = attrs.field(default=False, init=False)
    """Whether the last awaited message did not come: the next wait is shorter."""
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _tasks: trio.Nursery = attrs.field(init=False)
    _begin: trio.MemorySendChannel[int] = attrs.field(init=False)
    """Takes the indices of requests, to play their tracks."""

    def __attrs_post_init__(self) -> None:
        self._tracks = tracks(self.messages, self.side)
        theirs = {i: each for i, each in enumerate(self.messages) if each.sender != self.side}
        self._expected = ExpectedMessages(theirs, self.values, self.ignored)
        requests = (i for i, each in enumerate(self.messages) if each.kind == "request")
        self._requests = {self.messages[i].id: i for i in requests}
        responses = (i for i, each in enumerate(self.messages) if each.kind == "response")
        self._responses = {self.messages[i].id: i for i in responses}
        self._mcp = McpEnvelopes(self.messages)

    def start(self, peer: JsonRpcPeer, tasks: trio.Nursery) -> None:
        """Attach to `peer`, with an open connection, and return at once. The agent's side is
        played from now on, in `tasks`; the client's by `play`."""
        self.peer, self._tasks = peer, tasks
        peer.fallback = self
        tasks.start_soon(self._end_with_peer)
        if self.side == "agent":
            self._begin, begun = trio.open_memory_channel[int](math.inf)
            self._begin.send_nowait(BEGINNING)
            tasks.start_soon(self._play_tracks, begun)

    async def play(self) -> None:
        """Play the whole conversation as the client; it ends early if a response does not come."""
        with suppress(_NoResponse):
            await self._play(self._tracks[BEGINNING])

    # -- FallbackHandlers --------------------------------------------------------------------------

    def on_any_request(self, method: str, params: Any) -> Any:
        live = unwrapped("request", self._other_side, method, params, None)
        self._see_directory(live.payload)
        index = self._match(live)
        if index is None:
            known = self._expected.count(live)
            has = f"has {known} of them" if known else "has none"
            raise RequestError(METHOD_NOT_FOUND, f"{live.method}: the recording {self.name} {has}")
        if self.side == "agent":
            self._begin.send_nowait(index)
        return self._answer(self.messages[index])

    def on_any_notification(self, method: str, params: Any) -> None:
        self._match(unwrapped("notification", self._other_side, method, params, None))

    # -- what the peer sends -----------------------------------------------------------------------

    @property
    def _other_side(self) -> End:
        return "client" if self.side == "agent" else "agent"

    def _match(self, live: RecordedMessage) -> int | None:
        """The recorded message that one of the peer corresponds to; it has arrived."""
        found = self._expected.take(live)
        if found is None:
            what = f"{live.method} {live.update}" if live.update else live.method
            self.on_deviation(Deviation(f"{what} is not in the recording", live=live.payload))
            return None
        index, is_equal = found
        recorded = self.messages[index]
        self.values.learn(recorded.payload, live.payload)
        if not is_equal and recorded.kind == "request":
            text = f"#{recorded.n} {recorded.method} differs from the recording"
            self.on_deviation(Deviation(text, recorded, self.values.recorded(live.payload)))
        self._arrive(index)
        return index

    def _arrive(self, index: int) -> None:
        self._arrived.add(index)
        message = self.messages[index]
        if message.kind != "notification":
            session = self.messages[self._requests[message.id]].session or message.session
            self._passed.append((index, session))
        self._timed_out = False
        self._changed.unpark_all()

    def _see_directory(self, params: Any) -> None:
        """The first working directory of the live conversation replaces the recorded one."""
        if self.side == "client" or self.values.has_directory or not isinstance(params, dict):
            return
        recorded = (_cwd(each.payload) for each in self.messages if each.kind == "request")
        first = next(filter(None, recorded), None)
        live = _cwd(params)
        if first is not None and live is not None:
            self.values.set_directory(first, live)

    async def _answer(self, asked: RecordedMessage) -> Any:
        index = self._responses.get(asked.id)
        if index is None:
            await self._wait_for_end()
            raise RequestError(INTERNAL_ERROR, f"{asked.method} has no answer in the recording")
        response = self.messages[index]
        try:
            await self._due[index].wait()
            if response.cancelled:
                await self._wait_for_end()  # or until the peer cancels it, as it did then
        finally:
            self._written[index].set()
        payload = self.values.live(response.payload)
        if response.is_error:
            error = payload if isinstance(payload, dict) else {}
            code, text = error.get("code", INTERNAL_ERROR), error.get("message", "")
            raise RequestError(code, text, error.get("data"))
        return payload

    # -- what is sent ------------------------------------------------------------------------------

    async def _play_tracks(self, begun: trio.MemoryReceiveChannel[int]) -> None:
        """Begin tracks in the order of their requests: each runs until it has to wait, before the
        next one begins, so that the same requests always have the same answers."""
        async for index in begun:
            await self._tasks.start(self._play_track, self._tracks[index])

    async def _play_track(
        self, track: Sequence[int], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        has_waited = False

        def waits() -> None:
            nonlocal has_waited
            if not has_waited:
                has_waited = True
                task_status.started()

        with suppress(_NoResponse):
            await self._play(track, waits)
        waits()

    async def _play(self, track: Sequence[int], waits: Callable[[], None] = _nothing) -> None:
        last = self.messages[track[0]].ts if track else 0.0
        for index in track:
            message = self.messages[index]
            if message.sender != self.side:
                if index not in self._arrived:
                    waits()
                    await self._await(index)
            else:
                if self.speed is not None and message.ts > last:
                    waits()
                    with trio.move_on_after((message.ts - last) / self.speed):
                        await self._wait_for_end()
                await self._send(index)
            last = message.ts

    async def _send(self, index: int) -> None:
        message = self.messages[index]
        match message.kind:
            case "notification":
                self.peer.notify(*self._mcp.wrapped(message, self.values))
            case "request":
                await self._tasks.start(self._ask, message)
                self._live_ids[message.id] = next(reversed(self.peer.connection.sent), None)
            case "response":
                self._due[index].set()
                if self._requests[message.id] in self._arrived:
                    await self._written[index].wait()

    async def _ask(
        self,
        message: RecordedMessage,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        index = self._responses.get(message.id)
        task_status.started()  # the starter goes on after the request is written
        method, params = self._mcp.wrapped(message, self.values)
        try:
            await self.peer.request(
                method, params, answered=lambda result: self._answered(index, result)
            )
        except RequestError:
            self._failed.add(message.id)
            self._answered(index, None)
        except ConnectionClosed:
            pass

    def _answered(self, index: int | None, result: Any) -> None:
        if index is None:
            return
        recorded = self.messages[index]
        if not recorded.is_error and recorded.id not in self._failed:
            self.values.learn(recorded.payload, result)
        self._expected.arrived(index)
        self._arrive(index)

    # -- waiting -----------------------------------------------------------------------------------

    async def _await(self, index: int) -> None:
        """Wait until the peer has sent a message, or has gone on without it. Before a response to a
        request that was cancelled, cancel the request."""
        message = self.messages[index]
        if message.cancelled and message.id in self._live_ids:
            # A conversation is without the cancellation itself: give the request time to arrive.
            asked = self.messages[self._requests[message.id]]
            await trio.sleep(min(message.ts - asked.ts, _CANCEL_AFTER))
            self.peer.notify(CANCEL, {"requestId": self._live_ids[message.id]})
        is_late = message.kind == "notification" and self._is_idle()
        patience = min(self.patience, _IDLE) if is_late else self.patience
        if self._timed_out and message.kind != "response":
            patience = 0
        with trio.move_on_after(patience) as scope:
            await self._wait_until(lambda: index in self._arrived or self._is_given_up(index))
        is_handshake = message.protocol == "acp" and message.method == "initialize"
        if is_handshake and message.id in self._failed and not message.is_error:
            raise _NoResponse
        if scope.cancelled_caught and (not self._timed_out or message.kind == "response"):
            self._timed_out = True
            if not is_late:
                text = f"#{message.n} {message.label} did not come within {self.patience:g} s"
                self.on_deviation(Deviation(text, message, is_timeout=True))
            if message.kind == "response":
                raise _NoResponse

    def _is_idle(self) -> bool:
        """Whether a client has no open request: it waits for what an agent sends between turns."""
        return self.side == "client" and not self.peer.connection.sent

    def _is_given_up(self, index: int) -> bool:
        """Whether a client does not wait for a message: the agent is further in its session."""
        message = self.messages[index]
        if self.side == "agent" or message.kind == "response":
            return False
        return any(
            later > index and message.session in (None, session) for later, session in self._passed
        )

    async def _wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until something is true, or the connection has ended."""
        while not is_true() and not self.peer.ended.is_set():
            await self._changed.park()

    async def _wait_for_end(self) -> None:
        """Wait until the connection has ended."""
        await self._wait_until(lambda: False)

    async def _end_with_peer(self) -> None:
        await self.peer.ended.wait()
        self._changed.unpark_all()


def _cwd(params: Any) -> str | None:
    found = params.get("cwd") if isinstance(params, dict) else None
    return found if isinstance(found, str) else None


@attrs.define(eq=False)
class ExpectedMessages:
    """The recorded messages of the peer that have not come yet, by index."""

    messages: Mapping[int, RecordedMessage]
    values: ReplayValues
    ignored: Collection[str] = ()
    _waiting: defaultdict[Hashable, list[int]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    _counts: Counter[Hashable] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        for index, message in self.messages.items():
            self._waiting[message.key].append(index)
        self._counts = Counter(each.key for each in self.messages.values())

    def take(self, message: RecordedMessage) -> tuple[int, bool] | None:
        """Index of the message that a live one corresponds to, and whether their payloads are
        equal; it is not expected any more."""
        waiting = self._waiting.get(message.key)
        if not waiting:
            return None
        normalizer = Normalizer(self.ignored)
        live = self.values.recorded(message.payload)
        shown = normalizer.normalize(live)
        for index in waiting[:_MAX_COMPARED]:
            if normalizer.normalize(self.messages[index].payload) == shown:
                waiting.remove(index)
                return index, True
        session = live.get("sessionId") if isinstance(live, dict) else None
        same = (i for i in waiting if self.messages[i].session == session)
        index = next(same, waiting[0])
        waiting.remove(index)
        return index, False

    def arrived(self, index: int) -> None:
        """A message has come that was found by its id."""
        waiting = self._waiting[self.messages[index].key]
        if index in waiting:
            waiting.remove(index)

    def count(self, message: RecordedMessage) -> int:
        """The number of recorded messages that correspond to a live one."""
        return self._counts[message.key]


def tracks(messages: Sequence[RecordedMessage], side: End) -> dict[int, list[int]]:
    """The tracks of one side: indices of messages, by the index of the request that begins it."""
    if side == "client":
        return {BEGINNING: list(range(len(messages)))}
    return _agent_tracks(messages)


def _agent_tracks(messages: Sequence[RecordedMessage]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {BEGINNING: []}
    owners: dict[object, int] = {}
    """By id of a request of the agent: its track."""
    begun: dict[object, int] = {}
    """By id of a request of the client: its index."""
    sessions: dict[int, str | None] = {}
    """By index of a request of the client."""
    still_open: list[int] = []
    for index, message in enumerate(messages):
        if message.kind == "request" and message.sender == "client":
            found[index] = []
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
    return BEGINNING
