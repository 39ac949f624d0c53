"""The client's end of a chain: its connection, which may be lost and replaced by another one.

In: the transport, and later each transport over which the client returns (`reattach`). Out: the
client's `link`, which is connected to the first component. Between a disconnect and the return, a
`DetachedClient` holds messages back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal

import trio

from conductor.acp import PROMPT, session_id_of
from conductor.acp.turns import Turns
from conductor.adapters.negotiated import announced_by_client
from conductor.bounded_dict import BoundedDict
from conductor.chain.detached_client import DetachedClient, undelivered_messages
from conductor.errors import ComponentError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, encode_error
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.network.running_time import move_on_after_running
from conductor.routing.capabilities import ClientCapabilities
from conductor.routing.failure_errors import FailureErrors, answer_of_gone
from conductor.routing.link import Link
from conductor.routing.notices import Notices, Severity
from conductor.routing.stage import ForwardRequest, Stage
from conductor.secrets.masking import redact
from conductor.tracing.recorder import TraceRecorder
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop

__all__ = ["ClientEnd"]

_MAX_UNTOLD: Final = 20
_MAX_SESSIONS: Final = 1000
_JUST_NOW: Final = 0.5
_CLIENT_GONE: Final = encode_error(INTERNAL_ERROR, "The client is gone")

log: Final = get_logger(component="conductor")


class ClientEnd:
    """The client of one chain, over the transport that it uses now."""

    connection: Connection

    def __init__(
        self,
        transport: Transport,
        role: Literal["client", "parent"],
        flusher: Flusher,
        limits: Limits,
    ) -> None:
        self.label: str = ""
        """Its device for `ps`, in a server: its name or address."""
        self.transport: Transport = transport
        self.role = role
        self.flusher = flusher
        self.limits = limits
        self.link: Link = Link("client", role, _report)
        self.link.session_log.limits = limits
        self.capabilities: ClientCapabilities = ClientCapabilities(self.link.session_log)
        if role == "client":
            self.link.plain.insert(self.capabilities)
        self.notices: Notices = Notices()
        """Notices in the form that the client supports."""
        self.elsewhere: Collection[str] = ()
        """Sessions in further chains of this client (`session_chains`)."""
        self.turns: Turns[InFlightRequest] | None = None
        """The turns of the client; `None` if it is a parent conductor, which ends what hangs."""
        self.initialize_result: bytes | None = None
        """The raw result that the client has received, while the chain is initialized and not
        about to end."""
        self._told: BoundedDict[str, set[str]] = BoundedDict(_MAX_SESSIONS)
        """Subjects of the notices in the last turn of each session."""
        self._untold: list[tuple[str, str | None, Severity, str | None]] = []
        """Notices that wait for a prompt, because no session was open."""
        self.link.plain.insert(_Prompts(self._on_prompt, self._told, self._untold))
        self._recorder: TraceRecorder | None = None
        self._detached: DetachedClient | None = None
        self._reattached = trio.Event()
        self._writing = trio.CancelScope()
        self._connect()

    def trace(self, recorder: TraceRecorder) -> None:
        """Trace what the client gets."""
        self._recorder = recorder
        recorder.trace(self.link.plain, "client", "agent")

    def on_initialized(self, params: bytes | None, version: int, result: bytes | None) -> None:
        """The client has been initialized, maybe again, with these raw params and this version.

        `result` is the raw result for a client that returns; `None` if the chain is about to end.
        """
        self.initialize_result = result
        self.capabilities.announced = announced_by_client(params)
        self.notices = Notices.of(params, version)

    def on_first_request(self) -> None:
        """The client cannot repeat `initialize` from now on."""
        self.link.initialized = True

    async def serve(
        self, nursery: trio.Nursery, read_gate: Callable[[Transport], ReadGate]
    ) -> None:
        """Read from the client and write to it; returns at its EOF, unless it is detached.

        `read_gate` makes the gate of its reader. Writing goes on in `nursery`, until `close`.
        """
        await self._read(nursery, read_gate)
        while self._detached is not None and self._detached.is_detached:
            while not self._reattached.is_set():
                await self._reattached.wait()
            self._connect()
            self._detached.reattach()
            await self._read(nursery, read_gate)
        self.link.on_eof(_CLIENT_GONE)
        self.flusher.flush()

    def send_notice(
        self,
        session: str | None,
        title: str,
        detail: str | None = None,
        *,
        severity: Severity = "warning",
        once: str | None = None,
    ) -> None:
        """Show the user a notice in this session; see `ComponentHost.send_notice`."""
        known = self.link.session_log.sessions
        if session is not None and (session in known or not known):
            self._show(session, title, detail, severity, once)
        elif known:  # none, or that of a subagent
            asked = {each.session for each in self.connection.unanswered()}
            for each in [each for each in self.sessions if each in asked] or self.sessions:
                self._show(each, title, detail, severity, once)
        elif len(self._untold) < _MAX_UNTOLD:
            self._untold.append((title, detail, severity, once))

    def _show(
        self, session: str, title: str, detail: str | None, severity: Severity, once: str | None
    ) -> None:
        if once is not None:
            told = self._told.setdefault(session, set())
            if once in told:
                return
            told.add(once)
        params = self.notices.params(session, title, detail, severity)
        if self._recorder is None:
            self.link.plain.notify("session/update", params)
        else:
            self._recorder.notify(self.link.plain, "session/update", params)

    def _on_prompt(self, session: str) -> None:
        """A turn begins."""
        if session in self.elsewhere:
            return
        before = self._told.pop(session, set())
        untold = tuple(self._untold)
        self._untold.clear()
        for title, detail, severity, once in untold:
            if once not in before:
                self._show(session, title, detail, severity, once)

    def tell_idle_sessions(self, error: ComponentError) -> None:
        """Tell the user why the chain ends; a running turn ends with the error, and one that was
        answered just now perhaps had it.

        Not a parent conductor, which says what it does about the failure.
        """
        if self.turns is None:
            return
        title, _ = error.public_details()
        since = trio.current_time() - _JUST_NOW
        told = {
            session
            for session, turns in self.turns.sessions.items()
            if turns.is_running or (turns.answered_at is not None and turns.answered_at >= since)
        }
        for session in self.sessions:
            if session not in told:
                self.send_notice(session, redact(title), "the chain ends", severity="error")

    @property
    def sessions(self) -> list[str]:
        """The open sessions of this chain."""
        return [each for each in self.link.session_log.sessions if each not in self.elsewhere]

    # -- detaching ---------------------------------------------------------------------------------

    def allow_reattach(self) -> None:
        """Keep unanswered requests from now on, so that the client can be detached and return.

        Without effect for a parent conductor: it restarts the chain instead.
        """
        if self.turns is not None:
            self._detached = DetachedClient(self.link, self.turns, self.flusher.made_room)
            self.link.plain.insert(self._detached)

    def detach(self, unread: bytes = b"") -> bool:
        """The client is disconnected: queue messages to it until `reattach` or `end_detached`.

        `unread` is the end of what was written to its transport and was not read. The caller closes
        the transport afterwards. Returns false if the chain is not initialized, is ending, or
        `allow_reattach` was not called.
        """
        if self._detached is None or self.initialize_result is None:
            return False
        undelivered = undelivered_messages(self.connection, unread)
        self._detached.detach(self.initialize_result, undelivered)
        self.connection.abort_writing()
        self._writing.cancel()
        self._reattached = trio.Event()
        return True

    def reattach(self, transport: Transport) -> None:
        """The client has returned over another transport."""
        self.transport = transport
        self._reattached.set()

    def end_detached(self) -> None:
        """The client will not return: answer the requests that are queued for it."""
        if self._detached is not None:
            self._detached.end(_CLIENT_GONE)

    # -- the end -----------------------------------------------------------------------------------

    def answer_open_requests(self, failure: FailureErrors) -> None:
        """Answer the client's open requests with the errors of `failure`."""
        for call in self.connection.unanswered():
            error = failure.answer(call.method, delivered=True)
            self.connection.respond(call, *answer_of_gone(call.method, error))

    async def close(self, seconds: float) -> None:
        """Write the rest of the write buffer, within `seconds` in which this process runs, and
        close the write side."""
        self.flusher.flush()
        self.connection.close_writing()
        async with move_on_after_running(seconds):
            while not self.connection.closed:
                await self.flusher.wait_room()

    # -- the connection ----------------------------------------------------------------------------

    def _connect(self) -> None:
        self.connection = Connection(
            self.transport, self.link, self.flusher, answers_malformed=True, limits=self.limits
        )
        self.link.connect(self.connection)

    async def _read(
        self, nursery: trio.Nursery, read_gate: Callable[[Transport], ReadGate]
    ) -> None:
        nursery.start_soon(self._write, self.connection)
        await read_loop(self.connection, self.flusher, read_gate(self.transport))

    async def _write(self, connection: Connection) -> None:
        with trio.CancelScope() as self._writing:
            await write_loop(connection, self.flusher)


class _Prompts(Stage):
    """Calls a function with the session of a prompt of the client, if there are notices."""

    __slots__ = ("_asked", "_notices")

    name = "prompts"
    received: frozenset[str] = frozenset({PROMPT})

    def __init__(self, asked: Callable[[str], None], *notices: Collection[object]) -> None:
        self._asked = asked
        self._notices = notices

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        call.session = session_id_of(params)
        if call.session is not None and any(self._notices):
            self._asked(call.session)
        forward(call, method, params)


def _report(event: str, detail: str, message: dict[str, object]) -> None:
    log.warning(event, sender="client", detail=detail, **message)
