"""The front door: what the client meets until its chain is initialized, and no longer.

Before `initialize` nothing runs. With it the components start; what the client sends in the
meantime waits here, in order; when the answer is there, the client's side is linked to the first
component's, and the door is out of the way. A failed initialization may be tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from conductor.connection.calls import Call
from conductor.connection.runs import Run
from conductor.errors import ConductorError, RequestCancelled
from conductor.limits import Limits
from conductor.messages import (
    INVALID_REQUEST,
    Payload,
    encode_error,
    error_of,
    request_error,
)
from conductor.routing.capabilities import protocol_version
from conductor.routing.explaining import (
    RESTART,
    ExplainingAgent,
    restart_needed,
    unknown_abilities,
)
from conductor.routing.notices import Notices
from conductor.routing.recollection import SET_UPS
from conductor.routing.sides import Side, link
from conductor.session_ids import session_of

__all__ = ["FrontDoor"]

State = Literal["waiting", "starting", "explaining", "open"]
_AUTH_REQUIRED = -32000


class FrontDoor:
    """Stands between the client's side and the first component's.

    `start` begins to start the chain and returns the first component's client side; it raises
    `ConductorError`. `amend` may change the answer to `initialize`. `opened` is called when the
    chain is initialized and the client has its answer, `closed` when the start has failed.
    `explain` makes the text of the explaining agent out of the error; without it the client gets
    the error.
    """

    def __init__(
        self,
        client: Side,
        *,
        start: Callable[[], Side],
        amend: Callable[[bytes], bytes],
        opened: Callable[[], None],
        closed: Callable[[], None],
        explain: Callable[[bytes], str] | None = None,
        max_initialize: int = Limits().max_initialize_bytes,
    ) -> None:
        self.state: State = "waiting"
        self.tried = False
        """Whether the client has asked for initialization."""
        self.version = 1
        """The protocol version that was negotiated."""
        self.params: bytes | None = None
        """The params of the client's last `initialize`."""
        self.answer = b""
        """What the client was answered to `initialize`."""
        self.size = 0
        """Bytes that wait behind the door."""
        self._client = client
        self._start = start
        self._amend = amend
        self._opened = opened
        self._closed = closed
        self._explain = explain
        self._max_initialize = max_initialize
        self._explaining: ExplainingAgent | None = None
        self._outside = _Outside(self)
        self._inside = _Inside(self)
        self._asker: Call | None = None
        """The client's request that the start, or the first session after it, is the answer to."""
        self._set_up: _Queued | None = None
        """That request, if it sets up a session."""
        self._own: Call | None = None
        """Our own request to the chain for it."""
        self._queue: deque[_Queued] = deque()
        link(client, self._outside)

    def fail(self, error: ConductorError) -> None:
        """The chain cannot be started: everyone who waits is told why; it may be tried again."""
        if self.state == "starting":
            self._close(error_of(error))

    # -- from the client ---------------------------------------------------------------------------

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        match self.state:
            case "waiting" if method == "initialize" and self._is_too_long(params):
                size = f"{len(params or b'')} bytes"
                limit = f"the limit of {self._max_initialize} bytes (max_initialize_bytes)"
                self._refuse(call, f"`initialize` of {size} is over {limit}")
            case "waiting" if method == "initialize":
                self.tried = True
                self.params = None if params is None else bytes(params)
                self._begin(call)
            case "waiting":
                self._refuse(call, "expected `initialize` request")
            case "starting" if method == "initialize":
                self._refuse(call, "`initialize` is already under way")
            case "starting":
                call.target = self
                self._wait(_Queued(call, method, params))
            case "explaining" if method in SET_UPS:
                self._set_up = _Queued(call, method, None if params is None else bytes(params))
                self._begin(call)
            case _ if self._belongs_to_explaining_agent(method, params):
                assert self._explaining is not None
                self._explaining.request(call, method, params)
            case _:
                self._inside.neighbour.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        if self.state == "starting":
            self._wait(_Queued(None, method, params))
        elif self.state == "open" and not self._belongs_to_explaining_agent(method, params):
            self._inside.neighbour.notify(method, params)

    def cancel(self, call: Call) -> None:
        """Cancel `initialize` itself; others keep their mark until they are sent on."""
        if call is self._asker and self._own is not None:
            self._own.cancel()

    def _begin(self, asker: Call) -> None:
        """Start the chain, and initialize it as the client asked for."""
        self.state = "starting"
        self._asker = asker
        asker.target = self
        try:
            first = self._start()
        except ConductorError as exc:
            self._close(error_of(exc))
            return
        link(self._inside, first)
        self._own = Call("initialize", self._inside)
        first.request(self._own, "initialize", self.params)

    def _belongs_to_explaining_agent(self, method: str, params: Payload | None) -> bool:
        if self._explaining is None:
            return False
        if self.state == "explaining":
            return True
        session = session_of(params)
        if method in SET_UPS and session in self._explaining.sessions:
            self._explaining.sessions.discard(session)  # loaded anew, from the chain
        return session in self._explaining.sessions

    def _wait(self, queued: _Queued) -> None:
        if queued.params is not None:
            queued.params = bytes(queued.params)
            self.size += len(queued.params)
        self._queue.append(queued)

    def _is_too_long(self, params: Payload | None) -> bool:
        return params is not None and len(params) > self._max_initialize

    def _refuse(self, call: Call, problem: str) -> None:
        error = encode_error(INVALID_REQUEST, "Invalid request", problem)
        self._client.respond(call, None, error)

    # -- from the chain ----------------------------------------------------------------------------

    def answered(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call is self._own and self.state == "starting":
            self._initialized(result, error)
        elif call is self._own:
            self._session_set_up(result, error)
        elif self.state == "open":
            self._client.respond(call, result, error)

    def _initialized(self, result: Payload | None, error: Payload | None) -> None:
        if result is None:
            assert error is not None
            self._close(bytes(error))
            return
        version = protocol_version(result)
        if self._explaining is not None and version != self.version:
            self._close_for_good(f"it speaks version {version} of the protocol")
            return
        asker, self._own = self._asker, None
        assert asker is not None
        self.version = version
        self.answer = self._amend(bytes(result))
        self.state = "open"
        if self._set_up is not None:
            self._own = Call(self._set_up.method, self._inside, cancelled=asker.cancelled)
            first = self._inside.neighbour
            first.request(self._own, self._set_up.method, self._set_up.params)
            self._deliver(self.request, self.notify)
        else:
            self._client.respond(asker, self.answer, None)
            first = self._inside.neighbour
            link(self._client, first)
            self._deliver(first.request, first.notify)
        self._opened()

    def _session_set_up(self, result: Payload | None, error: Payload | None) -> None:
        """The chain's answer to the set-up of the first session after a start that was explained.

        The client knows of the chain only what the explaining agent promised.
        """
        asker, set_up, explaining = self._asker, self._set_up, self._explaining
        assert asker is not None
        assert set_up is not None
        assert explaining is not None
        self._asker = self._set_up = self._own = None
        unknown = unknown_abilities(explaining.initialize_result, self.answer)
        code = None if error is None else request_error(error).code
        if code == _AUTH_REQUIRED and "authMethods" in unknown:
            explaining.text = restart_needed(
                "its agent wants you to log in, and your editor does not know the ways to do so"
            )
            explaining.open(asker, set_up.method, set_up.params)
            return
        self._client.respond(asker, result, error)
        session = session_of(result) or session_of(set_up.params)
        explaining.text = (
            "**acp-conductor: the chain runs by now.**\n\nOpen a new session (thread)."
        )
        if result is not None and session is not None and unknown:
            notices = Notices.of(self.params, self.version)
            title = f"the chain runs now; {RESTART.lower()} to use all of it"
            detail = f"until then your editor does not use {', '.join(unknown)}"
            params = notices.params(session, title, detail, "info")
            self._client.notify("session/update", params)
        if not explaining.sessions:
            link(self._client, self._inside.neighbour)

    def _deliver(
        self,
        request: Callable[[Call, str, Payload | None], None],
        notify: Callable[[str, Payload | None], None],
    ) -> None:
        """Deliver what waits behind the door."""
        queue, self._queue, self.size = self._queue, deque(), 0
        for queued in queue:
            if queued.call is None:
                notify(queued.method, queued.params)
            else:
                queued.call.target = None
                request(queued.call, queued.method, queued.params)

    # -- a start that fails ------------------------------------------------------------------------

    def _close(self, error: bytes) -> None:
        """Tell everybody who waits; with `explain`, as an agent would."""
        cancelled = isinstance(request_error(error), RequestCancelled)
        if self._explain is None or cancelled:
            self._refuse_all(error)
        else:
            self._explain_to_all(self._explain(error))
        self._closed()

    def _close_for_good(self, reason: str) -> None:
        self._explain_to_all(restart_needed(reason))
        self._closed()

    def _refuse_all(self, error: bytes) -> None:
        asker, self._asker, self._set_up, self._own = self._asker, None, None, None
        self.state = "waiting" if self._explaining is None else "explaining"
        if asker is not None:
            self._client.respond(asker, None, error)
        self._deliver(lambda call, *_: self._client.respond(call, None, error), lambda *_: None)

    def _explain_to_all(self, text: str) -> None:
        asker, set_up = self._asker, self._set_up
        assert asker is not None
        self._asker = self._set_up = self._own = None
        self.state = "explaining"
        link(self._client, self._outside)
        if self._explaining is None:
            self._explaining = ExplainingAgent(self._client, self.params)
            self.version = self._explaining.version
            self.answer = self._explaining.initialize_result
        explaining = self._explaining
        explaining.text = text
        if set_up is None:
            self._client.respond(asker, self.answer, None)
        else:
            explaining.open(asker, set_up.method, set_up.params)

        def answer(call: Call, method: str, params: Payload | None) -> None:
            if method in SET_UPS:  # asked before the answer: another start would fail, too
                explaining.open(call, method, params)
            else:
                explaining.request(call, method, params)

        self._deliver(answer, lambda *_: None)


class _Queued(msgspec.Struct, eq=False):
    call: Call | None
    method: str
    params: Payload | None


class _Outside(Side):
    """The side that the client faces."""

    __slots__ = ("_door",)

    def __init__(self, door: FrontDoor) -> None:
        super().__init__()
        self._door = door

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        self._door.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._door.notify(method, params)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """The client's answer to what a component asked."""
        self._door._inside.neighbour.respond(call, result, error)

    def cancel(self, call: Call) -> None:
        self._door.cancel(call)

    def backlog(self) -> int:
        return self._door._inside.neighbour.backlog()

    def unread(self) -> int:
        return self._door._inside.neighbour.unread()


class _Inside(Side):
    """The side that the first component faces."""

    __slots__ = ("_door",)

    def __init__(self, door: FrontDoor) -> None:
        super().__init__()
        self._door = door

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        self._door._client.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._door._client.notify(method, params)

    def notify_run(self, run: Run) -> None:
        self._door._client.notify_run(run)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._door.answered(call, result, error)

    def cancel(self, call: Call) -> None:
        call.cancel()

    def backlog(self) -> int:
        return self._door._client.backlog()

    def unread(self) -> int:
        return self._door._client.unread()
