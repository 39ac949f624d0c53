"""A chain without its client: what the chain meets until a client that was cut off is back.

A client that was lost in the middle of its connection may return over another one; turns go on
meanwhile. `Parking` stands between the client's side and the first component's, from the cut until
the returned client has taken up its sessions. What it does:

- What the chain tells the client waits, in order: what belongs to no session until the client says
  its first word, the rest until the client takes up its session, by whatever it says about it.
- What the lost client had been asked and had not answered is asked again; its own requests are
  answered to nobody.
- `initialize` is answered from the record. `session/resume` goes to the agent if that can resume
  and has no turn of this session under way, else it is answered from the record, since the session
  lives. Before `session/load`, which replays the history, the updates that wait are dropped.

A client that takes up nothing must not hold up the others' messages: beyond `BOUND` everything
that waits is sent to it, once it is back.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from conductor.connection.calls import Call
from conductor.frames import members
from conductor.messages import INTERNAL_ERROR, Payload, encode_error
from conductor.routing.capabilities import resumes
from conductor.routing.recollection import SetUp
from conductor.routing.sides import Side, link
from conductor.routing.unanswered import Asked, Unanswered
from conductor.routing.wire import Wire
from conductor.session_ids import session_of

__all__ = ["BOUND", "Parking"]

BOUND: Final = 1024 * 1024
"""Bytes that may wait for sessions that a returned client has not taken up."""
_LOST: Final = encode_error(
    INTERNAL_ERROR, "The client was cut off, and this request was too large to be asked again"
)


class Parking:
    """Between the client's side and the first component's, while it is `standing`.

    `initialized` is what the client was answered to `initialize`. `made_room` is called when less
    waits than before.
    """

    def __init__(
        self,
        client: Wire,
        unanswered: Unanswered,
        initialized: bytes,
        made_room: Callable[[], None],
    ) -> None:
        self.standing = False
        self.away = False
        """The client is cut off."""
        self.size = 0
        """Bytes that wait."""
        self._wire = client
        self._client = client.plain
        self._unanswered = unanswered
        self._initialized = initialized
        self._made_room = made_room
        self._outside = _Outside(self)
        self.inside: Side = _Inside(self)
        """The side that the first component faces."""
        self._waiting: deque[Asked] = deque()
        self._silent = False
        """The client has not said a word since it is back."""
        self._asleep: set[str] = set()
        """Sessions that the client has not taken up."""
        self._taken_up: dict[Call, tuple[str, bool]] = {}
        """Requests that take up a session, and whether they replay its history."""

    def leave(self, not_delivered: Sequence[Asked] = ()) -> None:
        """The client is cut off. What it never got waits for it, too."""
        if not self.standing:
            link(self.inside, self._client.neighbour)
            link(self._client, self._outside)
            self.standing = True
        self.away = True
        self._taken_up.clear()
        again = []
        known = {asked.call for asked in not_delivered}
        for call, asked in self._unanswered.take():
            if asked is None:
                self._first.respond(call, None, _LOST)
            elif call not in known:
                again.append(asked)
        again += [each for each in not_delivered if each.call is None or not each.call.answered]
        self._waiting.extendleft(reversed(again))
        self.size += sum(each.size for each in again)

    def back(self) -> None:
        """The client is there again, over another connection of its wire."""
        self.away, self._silent = False, True
        self._wire.initialized = False
        self._asleep = set(self._wire.recollection.sessions)

    def end(self, why: bytes) -> None:
        """The client will not come back: what waits for its answer gets the error `why`."""
        waiting, self._waiting, self.size = self._waiting, deque(), 0
        for each in waiting:
            if each.call is not None:
                self._first.respond(each.call, None, why)
        self._made_room()

    @property
    def _first(self) -> Side:
        return self.inside.neighbour

    # -- toward the agent --------------------------------------------------------------------------

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        if self.away:
            self._first.request(call, method, params)  # said before the cut
            return
        if method == "initialize":
            self._client.respond(call, self._initialized, None)
            self._wire.initialized = True
            self._listen()
            return
        session = session_of(params)
        if session not in self._asleep or session is None:
            self._listen()
        elif not self._take_up(call, method, params, session):
            return
        self._first.request(call, method, params)
        self._step_aside()

    def notify(self, method: str, params: Payload | None) -> None:
        if not self.away:
            self._wake(session_of(params))
        self._first.notify(method, params)
        self._step_aside()

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._first.respond(call, result, error)

    def _take_up(self, call: Call, method: str, params: Payload | None, session: str) -> bool:
        """The client names a session that is asleep. False if that is dealt with."""
        replays = method == "session/load" or _replays(params)
        if replays:
            self._taken_up[call] = (session, True)
            self._asleep.discard(session)  # the history is to pass
        elif method == "session/resume":
            record = self._wire.recollection.sessions.get(session)
            if record is not None and (
                not resumes(self._initialized) or self._unanswered.has_turn(session)
            ):
                self._client.respond(call, _resumed(record), None)
                self._wake(session)
                return False
            self._taken_up[call] = (session, False)
        else:
            self._wake(session)
        self._listen()
        return True

    # -- toward the client -------------------------------------------------------------------------

    def tell(self, asked: Asked) -> None:
        """Something for the client."""
        if self._passes(asked):
            self._send(asked)
            return
        self._waiting.append(asked)
        self.size += asked.size
        if self.size > BOUND and not self.away and not self._silent:
            self._asleep.clear()
            self._release()

    def answered(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._client.respond(call, result, error)
        session, replayed = self._taken_up.pop(call, (None, False))
        if session is None:
            return
        if result is None:
            self._asleep.add(session)
            return
        if replayed:
            self._drop_updates(session)
        self._wake(session)

    def _passes(self, asked: Asked) -> bool:
        if self.away or self._silent:
            return False
        return not self._asleep or session_of(asked.params) not in self._asleep

    def _send(self, asked: Asked) -> None:
        if asked.call is None:
            self._client.notify(asked.method, asked.params)
        else:
            self._client.request(asked.call, asked.method, asked.params)

    def _listen(self) -> None:
        """The client speaks: what belongs to no session, or to one that is awake, goes to it."""
        if self._silent:
            self._silent = False
            self._release()

    def _wake(self, session: str | None) -> None:
        if session is not None:
            self._asleep.discard(session)
        self._silent = False
        self._release()

    def _release(self) -> None:
        waiting, self._waiting, self.size = self._waiting, deque(), 0
        for each in waiting:
            if self._passes(each) and not self._is_loading(each):
                self._send(each)
            else:
                self._waiting.append(each)
                self.size += each.size
        self._made_room()
        self._step_aside()

    def _is_loading(self, asked: Asked) -> bool:
        """Whether it waited when a request for its session's history came: that goes first."""
        loading = [session for session, replays in self._taken_up.values() if replays]
        return bool(loading) and session_of(asked.params) in loading

    def _drop_updates(self, session: str) -> None:
        waiting = self._waiting
        self._waiting = deque(
            each
            for each in waiting
            if each.method != "session/update" or session_of(each.params) != session
        )
        self.size = sum(each.size for each in self._waiting)

    def _step_aside(self) -> None:
        """Nothing waits, and nothing will."""
        if self.away or self._silent or self._waiting or self._asleep or self._taken_up:
            return
        if self.standing:
            self.standing = False
            self._wire.initialized = True
            link(self._client, self._first)


def _replays(params: Payload | None) -> bool:
    """Whether a `session/resume` of version 2 asks for history."""
    try:
        return bytes(members(bytes(params or b"{}")).get("replayFrom", b"null")) != b"null"
    except (ValueError, RecursionError):
        return False


def _resumed(record: SetUp) -> bytes:
    """The answer to `session/resume` as the session's set-up was answered."""
    try:
        pairs = members(record.result or b"{}")
    except (ValueError, RecursionError):
        return b"{}"  # `session/load` may be answered with null
    pairs.pop("sessionId", None)
    return b"{%b}" % b",".join(json.dumps(k).encode() + b":" + v for k, v in pairs.items())


class _Outside(Side):
    """The side that the client faces."""

    __slots__ = ("_parking",)

    def __init__(self, parking: Parking) -> None:
        super().__init__()
        self._parking = parking

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        self._parking.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._parking.notify(method, params)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._parking.respond(call, result, error)

    def cancel(self, call: Call) -> None:
        call.cancel()

    def backlog(self) -> int:
        return self._parking.inside.neighbour.backlog()


class _Inside(Side):
    """The side that the first component faces."""

    __slots__ = ("_parking",)

    def __init__(self, parking: Parking) -> None:
        super().__init__()
        self._parking = parking

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        self._parking.tell(Asked(call, method, None if params is None else bytes(params)))

    def notify(self, method: str, params: Payload | None) -> None:
        self._parking.tell(Asked(None, method, None if params is None else bytes(params)))

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._parking.answered(call, result, error)

    def cancel(self, call: Call) -> None:
        call.cancel()

    def backlog(self) -> int:
        return self._parking.size
