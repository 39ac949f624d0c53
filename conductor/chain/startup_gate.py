"""Startup gate: holds the client's messages back until its chain is initialized. Pure.

Before `initialize` no component runs. `initialize` starts them; messages that the client sends
meanwhile are queued in order. When the chain has answered, the queue is delivered. The client may
repeat `initialize` until its first other request: the running chain answers, and the last result
counts. The gate is removed with that request. A failed start may be tried again: by another
`initialize`, or, where a start-failure agent has answered, by the next session set-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.adapters.negotiated import announced_by_client
from conductor.chain.start_failure import (
    CHAIN_RUNS_TEXT,
    RESTART_HINT,
    FailureContext,
    StartFailureAgent,
    restart_needed,
)
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import ConductorError, RequestCancelled
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    INVALID_REQUEST,
    Payload,
    encode_error,
    error_to_exception,
    exception_to_error,
)
from conductor.limits import Limits
from conductor.routing.capabilities import protocol_version
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.notices import Notices
from conductor.routing.stage import (
    EVERY,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
)

__all__ = ["StartupGate"]

GateState = Literal["waiting", "starting", "explaining", "open", "repeating"]


class StartupGate(Stage):
    """Stage at the client's port until the chain is initialized.

    `start` begins to start the chain and connects the port to the first component; it raises
    `ConductorError`. `patch_result` may change the raw result of `initialize`. `on_open` is called
    when the chain is initialized and the client has its response, each time; `on_removed` when the
    client cannot initialize it again; `on_start_failed` when the start has failed, before it
    `on_error` with an error that no component has answered. With a `failure_context`, the
    start-failure agent tells the error, and which component has answered with it (`refusing`);
    without, the client gets the error. `initialize` params over `max_initialize` bytes are refused.
    With `is_for_session`, a session set-up follows that was sent before the start: after a failed
    start it triggers no other attempt.
    """

    name = "startup gate"
    received: frozenset[str] = EVERY

    def __init__(
        self,
        *,
        start: Callable[[], None],
        patch_result: Callable[[bytes], bytes],
        on_open: Callable[[], None],
        on_start_failed: Callable[[], None],
        on_error: Callable[[ConductorError], None] = lambda error: None,
        on_removed: Callable[[], None] = lambda: None,
        failure_context: FailureContext | None = None,
        refusing: Callable[[], str | None] = lambda: None,
        max_initialize: int = Limits().max_initialize_bytes,
        is_for_session: bool = False,
    ) -> None:
        self.state: GateState = "waiting"
        self.was_attempted: bool = False
        """Whether the client has sent a valid `initialize`."""
        self.version: int = 1
        """The negotiated protocol version."""
        self.params: bytes | None = None
        """Raw params of the client's last `initialize`."""
        self.answer: bytes = b""
        """Raw result of the client's `initialize`."""
        self._start = start
        self._patch_result = patch_result
        self._on_open = on_open
        self._notify_start_failed = on_start_failed
        self._on_error = on_error
        self._on_removed = on_removed
        self._failure_context = failure_context
        self._refusing = refusing
        self._max_initialize = max_initialize
        self._setup_follows = is_for_session
        self._failure_agent: StartFailureAgent | None = None
        self._trigger: QueuedMessage | None = None
        """The client's request that triggered the current start, until the chain has answered it:
        `initialize` or a session set-up."""
        self._initialize: InFlightRequest | None = None
        """The open `initialize`: the client's, or the gate's own for a set-up."""
        self._repeated_params: bytes | None = None
        """Raw params of an `initialize` to the running chain."""
        self._queue = MessageQueue()

    @property
    def setup_params(self) -> bytes | None:
        """Raw params of the session set-up that triggers the current start, if it is one."""
        trigger = self._trigger
        return None if trigger is None or trigger.method == "initialize" else trigger.params

    @property
    def size(self) -> int:
        """Bytes that wait at the startup gate."""
        return self._queue.size

    def fail(self, error: ConductorError) -> None:
        """The chain cannot start: answer all waiting requests; the start may be tried again."""
        self._on_error(error)
        if self.state == "starting":
            self._on_start_failed(exception_to_error(error))

    # -- from the client ---------------------------------------------------------------------------

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        match self.state:
            case "starting" | "repeating" if method == "initialize":
                self._refuse(call, "`initialize` is already under way")
            case "starting" | "repeating":
                self._queue.append(QueuedMessage.copy_of(call, method, params))
            case "waiting" | "open" if method == "initialize" and self._is_too_long(params):
                size = f"{len(params or b'')} bytes"
                limit = f"the limit of {self._max_initialize} bytes (max_initialize_bytes)"
                self._refuse(call, f"`initialize` of {size} is over {limit}")
            case "waiting" if method == "initialize":
                self.was_attempted = True
                self.params = None if params is None else bytes(params)
                self._begin(call, method, params)
            case "waiting":
                self._refuse(call, "expected `initialize` request")
            case "open" if method == "initialize" and self._failure_agent is None:
                self.state = "repeating"
                self._initialize = call
                self._repeated_params = None if params is None else bytes(params)
                forward(call, method, params)
            case "open" if self._failure_agent is None:
                self._remove()
                forward(call, method, params)
            case "explaining" if method in SESSION_SETUP_METHODS and self._setup_follows:
                assert self._failure_agent is not None
                self._setup_follows = False
                self._failure_agent.open(call, method, params)
            case "explaining" if method in SESSION_SETUP_METHODS:
                self._begin(call, method, params)
            case _ if self._is_for_failure_agent(method, params):
                assert self._failure_agent is not None
                self._failure_agent.request(call, method, params)
            case _:
                forward(call, method, params)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if self.state in ("starting", "repeating"):
            self._queue.append(QueuedMessage.copy_of(None, method, params))
        elif self.state == "open" and not self._is_for_failure_agent(method, params):
            forward(method, params)

    def cancel(self, call: InFlightRequest) -> None:
        """As target of the set-up that has triggered the start: cancel the start."""
        if self._initialize is not None:
            self._initialize.cancel()

    def _begin(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Start the chain and initialize it with the client's params."""
        self.state = "starting"
        self._trigger = QueuedMessage.copy_of(call, method, params)
        try:
            self._start()
        except ConductorError as exc:
            self.fail(exc)
            return
        self._initialize = call
        if method != "initialize":
            call.target = self
            self._initialize = InFlightRequest("initialize", self)
        self.port.neighbour.request(self._initialize, "initialize", self.params)

    def _is_for_failure_agent(self, method: str, params: Payload | None) -> bool:
        if self._failure_agent is None:
            return False
        if self.state == "explaining":
            return True
        session = session_id_of(params)
        if method in SESSION_SETUP_METHODS and session in self._failure_agent.sessions:
            self._failure_agent.sessions.discard(session)  # from now on a session of the chain
        return session in self._failure_agent.sessions

    def _is_too_long(self, params: Payload | None) -> bool:
        return params is not None and len(params) > self._max_initialize

    def _refuse(self, call: InFlightRequest, problem: str) -> None:
        error = encode_error(INVALID_REQUEST, "Invalid request", problem)
        self.port.respond(call, None, error)

    # -- from the chain ----------------------------------------------------------------------------

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if call is self._initialize:
            self._initialize = None
            if self.state == "repeating":
                self._initialized_again(forward, call, result, error)
            else:
                self._initialized(forward, result, error)
        elif self.state == "open" and self._trigger is not None and call is self._trigger.call:
            self._first_session_answered(forward, self._trigger, result, error)
        else:
            forward(call, result, error)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """As originator: ignore the late response to the `initialize` of a start that failed."""

    def _initialized(
        self, forward: ForwardResponse, result: Payload | None, error: Payload | None
    ) -> None:
        if result is None:
            assert error is not None
            self._on_start_failed(bytes(error), self._refusing())
            return
        version = protocol_version(result)
        if self._failure_agent is not None and version != self.version:
            reason = f"it speaks version {version} of the protocol"
            self._explain(restart_needed(reason))
            self._notify_start_failed()
            return
        trigger = self._trigger
        assert trigger is not None
        assert trigger.call is not None
        self.version = version
        self.answer = self._patch_result(bytes(result))
        self.state = "open"
        if trigger.method == "initialize":
            self._trigger = None
            forward(trigger.call, self.answer, None)
        else:
            trigger.call.target = None
            trigger.send_to(self.port.neighbour)
        self._deliver_queue()
        self._on_open()
        if self._failure_agent is not None:
            self._on_removed()

    def _initialized_again(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        """Response of the running chain to a repeated `initialize`; after an error the earlier one
        counts."""
        self.state = "open"
        if result is not None:
            self.params, self.version = self._repeated_params, protocol_version(result)
            result = self.answer = self._patch_result(bytes(result))
        forward(call, result, error)
        self._deliver_queue()
        self._on_open()

    def _deliver_queue(self) -> None:
        has_requests = False

        def deliver(message: QueuedMessage) -> None:
            nonlocal has_requests
            has_requests |= message.call is not None
            self.port.pass_on(self, message.call, message.method, message.params)

        self._queue.release(deliver)
        if has_requests and self._failure_agent is None:
            self._remove()

    def _remove(self) -> None:
        self.port.remove(self)
        self._on_removed()

    def _first_session_answered(
        self,
        forward: ForwardResponse,
        setup: QueuedMessage,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        """Response of the chain to the first session set-up after an earlier failed start.

        The client knows only that the start-failure agent has announced no capabilities.
        """
        failure_agent, self._trigger = self._failure_agent, None
        assert failure_agent is not None
        assert setup.call is not None
        if error is not None and error_to_exception(error).code == AUTHENTICATION_REQUIRED:
            failure_agent.text = restart_needed(
                "its agent requires a login, and your editor does not know its login methods"
            )
            failure_agent.open(setup.call, setup.method, setup.params)
            return
        forward(setup.call, result, error)
        session = session_id_of(result) or session_id_of(setup.params)
        failure_agent.text = CHAIN_RUNS_TEXT
        if result is not None and session is not None:
            notices = Notices.of(self.params, self.version)
            title = f"the chain runs now; {RESTART_HINT.lower()} to use all of it"
            detail = "until then your editor uses only what every agent can do"
            params = notices.params(session, title, detail, "info")
            self.port.notify("session/update", params)
        if not failure_agent.sessions:
            self.port.remove(self)

    # -- a start that fails ------------------------------------------------------------------------

    def _on_start_failed(self, error: bytes, component: str | None = None) -> None:
        """Answer all waiting requests, with the error or through the start-failure agent."""
        cancelled = isinstance(error_to_exception(error), RequestCancelled)
        if self._failure_context is None or cancelled:
            self.state = "waiting" if self._failure_agent is None else "explaining"
            self._answer_waiting(lambda call, *_: self.port.respond(call, None, error))
        else:
            client = announced_by_client(self.params).name
            self._explain(self._failure_context.describe(error, component, client))
        self._notify_start_failed()

    def _explain(self, text: str) -> None:
        """Answer all waiting requests through the start-failure agent, and those that follow."""
        self.state = "explaining"
        if self._failure_agent is None:
            self._failure_agent = StartFailureAgent(self.port, self.params)
            self.version = self._failure_agent.version
            self.answer = self._failure_agent.initialize_result
        failure_agent = self._failure_agent
        failure_agent.text = text

        def answer(call: InFlightRequest, method: str, params: Payload | None) -> None:
            if method == "initialize":
                self.port.respond(call, self.answer, None)
            elif method in SESSION_SETUP_METHODS:
                # Sent before the start had failed: it triggers no other attempt.
                failure_agent.open(call, method, params)
            else:
                failure_agent.request(call, method, params)

        self._answer_waiting(answer)

    def _answer_waiting(
        self, answer: Callable[[InFlightRequest, str, Payload | None], None]
    ) -> None:
        """Answer the request that has triggered the start, and the queued ones, in order."""
        waiting = [] if self._trigger is None else [self._trigger]
        self._trigger = self._initialize = None
        self._queue.release(waiting.append)
        for each in waiting:
            if each.call is not None:
                answer(each.call, each.method, each.params)
