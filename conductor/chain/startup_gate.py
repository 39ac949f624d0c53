"""Startup gate: queues the client's messages until its chain is initialized. Pure.

Before `initialize` no component runs. `initialize` starts them; messages that the client sends
meanwhile are queued in order. When the chain has answered, the client's port is connected to the
first component's port, the queue is delivered, and the gate is out of the path. A failed start may
be tried again: by another `initialize`, or, where a start-failure agent has answered, by the next
session set-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.chain.start_failure import (
    CHAIN_RUNS_TEXT,
    RESTART_HINT,
    StartFailureAgent,
    restart_needed,
    unannounced_capabilities,
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
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.limits import Limits
from conductor.routing.capabilities import protocol_version
from conductor.routing.message_queue import MessageQueue, QueuedMessage
from conductor.routing.notices import Notices
from conductor.routing.port import Port, connect_ports

__all__ = ["StartupGate"]

GateState = Literal["waiting", "starting", "explaining", "open"]


class StartupGate(Port):
    """Takes the client's messages in place of the first component until the chain is initialized.

    `start` begins to start the chain and returns the first component's client port; it raises
    `ConductorError`. `patch_result` may change the raw result of `initialize`. `on_open` is called
    when the chain is initialized and the client has its response, `on_start_failed` when the start
    has failed. `describe_failure` turns the wire error into the text of the start-failure agent;
    without it the client gets the error. `initialize` params over `max_initialize` bytes are
    refused. With `is_for_session`, a session set-up follows that was sent before the start: after a
    failed start it triggers no other attempt.
    """

    def __init__(
        self,
        client: Port,
        *,
        start: Callable[[], Port],
        patch_result: Callable[[bytes], bytes],
        on_open: Callable[[], None],
        on_start_failed: Callable[[], None],
        describe_failure: Callable[[bytes], str] | None = None,
        max_initialize: int = Limits().max_initialize_bytes,
        is_for_session: bool = False,
    ) -> None:
        super().__init__()
        self.state: GateState = "waiting"
        self.was_attempted: bool = False
        """Whether the client has sent a valid `initialize`."""
        self.version: int = 1
        """The negotiated protocol version."""
        self.params: bytes | None = None
        """Raw params of the client's last `initialize`."""
        self.answer: bytes = b""
        """Raw result of the client's `initialize`."""
        self.choose_chain: Callable[[InFlightRequest, str, Payload | None], bool] | None = None
        """Called first with each queued request when the chain is initialized; returns whether it
        has handled it."""
        self._client = client
        self._start = start
        self._patch_result = patch_result
        self._on_open = on_open
        self._notify_start_failed = on_start_failed
        self._describe_failure = describe_failure
        self._max_initialize = max_initialize
        self._setup_follows = is_for_session
        self._failure_agent: StartFailureAgent | None = None
        self._chain_port = _GateChainPort(self)
        self._originator: InFlightRequest | None = None
        """The client's request that triggered the current start: `initialize` or a set-up."""
        self._pending_setup: QueuedMessage | None = None
        """The same request, if it is a session set-up."""
        self._own_request: InFlightRequest | None = None
        """The gate's own request to the chain on behalf of it."""
        self._queue = MessageQueue()
        connect_ports(client, self)

    def replace_client(self, client: Port) -> None:
        """Use another port of the client, before the chain starts: a traced one."""
        self._client = client
        connect_ports(client, self)

    @property
    def setup_params(self) -> bytes | None:
        """Raw params of the session set-up that triggers the current start, if it is one."""
        return None if self._pending_setup is None else self._pending_setup.params

    @property
    def is_out_of_the_way(self) -> bool:
        """Whether the chain is initialized, and the gate waits for no response of it."""
        return self.state == "open" and self._own_request is None

    @property
    def size(self) -> int:
        """Bytes that wait at the startup gate."""
        return self._queue.size

    def fail(self, error: ConductorError) -> None:
        """The chain cannot start: answer all waiting requests; the start may be tried again."""
        if self.state == "starting":
            self._on_start_failed(exception_to_error(error))

    # -- from the client ---------------------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        match self.state:
            case "waiting" if method == "initialize" and self._is_too_long(params):
                size = f"{len(params or b'')} bytes"
                limit = f"the limit of {self._max_initialize} bytes (max_initialize_bytes)"
                self._refuse(call, f"`initialize` of {size} is over {limit}")
            case "waiting" if method == "initialize":
                self.was_attempted = True
                self.params = None if params is None else bytes(params)
                self._begin(call)
            case "waiting":
                self._refuse(call, "expected `initialize` request")
            case "starting" if method == "initialize":
                self._refuse(call, "`initialize` is already under way")
            case "starting":
                call.target = self
                self._queue.append(QueuedMessage.copy_of(call, method, params))
            case "explaining" if method in SESSION_SETUP_METHODS and self._setup_follows:
                assert self._failure_agent is not None
                self._setup_follows = False
                self._failure_agent.open(call, method, params)
            case "explaining" if method in SESSION_SETUP_METHODS:
                self._pending_setup = QueuedMessage.copy_of(call, method, params)
                self._begin(call)
            case _ if self._is_for_failure_agent(method, params):
                assert self._failure_agent is not None
                self._failure_agent.request(call, method, params)
            case _:
                self._chain_port.neighbour.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        if self.state == "starting":
            self._queue.append(QueuedMessage.copy_of(None, method, params))
        elif self.state == "open" and not self._is_for_failure_agent(method, params):
            self._chain_port.neighbour.notify(method, params)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._chain_port.neighbour.respond(call, result, error)

    def backlog(self) -> int:
        return self._chain_port.neighbour.backlog()

    def unread(self) -> int:
        return self._chain_port.neighbour.unread()

    def cancel(self, call: InFlightRequest) -> None:
        """Cancel the start; queued requests stay marked as cancelled until they are delivered."""
        if call is self._originator and self._own_request is not None:
            self._own_request.cancel()

    def _begin(self, originator: InFlightRequest) -> None:
        """Start the chain and initialize it with the client's params."""
        self.state = "starting"
        self._originator = originator
        originator.target = self
        try:
            first = self._start()
        except ConductorError as exc:
            self._on_start_failed(exception_to_error(exc))
            return
        connect_ports(self._chain_port, first)
        self._own_request = InFlightRequest("initialize", self._chain_port)
        first.request(self._own_request, "initialize", self.params)

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
        self._client.respond(call, None, error)

    # -- from the chain ----------------------------------------------------------------------------

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        if call is self._own_request and self.state == "starting":
            self._initialized(result, error)
        elif call is self._own_request:
            self._first_session_answered(result, error)
        elif self.state == "open":
            self._client.respond(call, result, error)

    def _initialized(self, result: Payload | None, error: Payload | None) -> None:
        if result is None:
            assert error is not None
            self._on_start_failed(bytes(error))
            return
        version = protocol_version(result)
        if self._failure_agent is not None and version != self.version:
            self._require_restart(f"it speaks version {version} of the protocol")
            return
        originator, self._own_request = self._originator, None
        assert originator is not None
        self.version = version
        self.answer = self._patch_result(bytes(result))
        self.state = "open"
        if self._pending_setup is not None:
            self._own_request = InFlightRequest(
                self._pending_setup.method, self._chain_port, cancelled=originator.cancelled
            )
            first = self._chain_port.neighbour
            first.request(self._own_request, self._pending_setup.method, self._pending_setup.params)
        else:
            self._client.respond(originator, self.answer, None)
            first = self._chain_port.neighbour
            connect_ports(self._client, first)
        self._deliver(self._deliver_request, lambda *each: self._client.neighbour.notify(*each))
        self._on_open()

    def _deliver_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self.choose_chain is None or not self.choose_chain(call, method, params):
            self._client.neighbour.request(call, method, params)

    def _first_session_answered(self, result: Payload | None, error: Payload | None) -> None:
        """Response of the chain to the first session set-up after an earlier failed start.

        The client knows only the capabilities that the start-failure agent has announced.
        """
        originator, setup, failure_agent = (
            self._originator,
            self._pending_setup,
            self._failure_agent,
        )
        assert originator is not None
        assert setup is not None
        assert failure_agent is not None
        self._originator = self._pending_setup = self._own_request = None
        unannounced = unannounced_capabilities(failure_agent.initialize_result, self.answer)
        code = None if error is None else error_to_exception(error).code
        if code == AUTHENTICATION_REQUIRED and "authMethods" in unannounced:
            failure_agent.text = restart_needed(
                "its agent requires a login, and your editor does not know its login methods"
            )
            failure_agent.open(originator, setup.method, setup.params)
            return
        self._client.respond(originator, result, error)
        session = session_id_of(result) or session_id_of(setup.params)
        failure_agent.text = CHAIN_RUNS_TEXT
        if result is not None and session is not None and unannounced:
            notices = Notices.of(self.params, self.version)
            title = f"the chain runs now; {RESTART_HINT.lower()} to use all of it"
            detail = f"until then your editor does not use {', '.join(unannounced)}"
            params = notices.params(session, title, detail, "info")
            self._client.notify("session/update", params)
        if not failure_agent.sessions:
            connect_ports(self._client, self._chain_port.neighbour)

    def _deliver(
        self,
        request: Callable[[InFlightRequest, str, Payload | None], None],
        notify: Callable[[str, Payload | None], None],
    ) -> None:
        """Deliver the queued messages in order."""

        def deliver(message: QueuedMessage) -> None:
            if message.call is None:
                notify(message.method, message.params)
            else:
                message.call.target = None
                request(message.call, message.method, message.params)

        self._queue.release(deliver)

    # -- a start that fails ------------------------------------------------------------------------

    def _on_start_failed(self, error: bytes) -> None:
        """Answer all waiting requests, with the error or through the start-failure agent."""
        cancelled = isinstance(error_to_exception(error), RequestCancelled)
        if self._describe_failure is None or cancelled:
            self._answer_all(error)
        else:
            self._start_failure_agent(self._describe_failure(error))
        self._notify_start_failed()

    def _require_restart(self, reason: str) -> None:
        self._start_failure_agent(restart_needed(reason))
        self._notify_start_failed()

    def _answer_all(self, error: bytes) -> None:
        originator, self._originator, self._pending_setup, self._own_request = (
            self._originator,
            None,
            None,
            None,
        )
        self.state = "waiting" if self._failure_agent is None else "explaining"
        if originator is not None:
            self._client.respond(originator, None, error)
        self._deliver(lambda call, *_: self._client.respond(call, None, error), lambda *_: None)

    def _start_failure_agent(self, text: str) -> None:
        originator, setup = self._originator, self._pending_setup
        assert originator is not None
        self._originator = self._pending_setup = self._own_request = None
        self.state = "explaining"
        connect_ports(self._client, self)
        if self._failure_agent is None:
            self._failure_agent = StartFailureAgent(self._client, self.params)
            self.version = self._failure_agent.version
            self.answer = self._failure_agent.initialize_result
        failure_agent = self._failure_agent
        failure_agent.text = text
        if setup is None:
            self._client.respond(originator, self.answer, None)
        else:
            failure_agent.open(originator, setup.method, setup.params)

        def answer(call: InFlightRequest, method: str, params: Payload | None) -> None:
            # Sent before the start had failed: it triggers no other attempt.
            if method in SESSION_SETUP_METHODS:
                failure_agent.open(call, method, params)
            else:
                failure_agent.request(call, method, params)

        self._deliver(answer, lambda *_: None)


class _GateChainPort(Port):
    """The neighbour of the first component's client port."""

    __slots__ = ("_gate",)

    def __init__(self, gate: StartupGate) -> None:
        super().__init__()
        self._gate = gate

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._gate._client.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._gate._client.notify(method, params)

    def notify_batch(self, notifications: NotificationBatch) -> None:
        self._gate._client.notify_batch(notifications)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self._gate.on_response(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        call.cancel()

    def backlog(self) -> int:
        return self._gate._client.backlog()

    def unread(self) -> int:
        return self._gate._client.unread()
