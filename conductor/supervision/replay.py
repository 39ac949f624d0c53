"""Replay: brings a restarted component to the state of its previous process.

A proxy gets its handshake and the set-up of every open session again; the requests that it forwards
meanwhile are answered from the session log, so its successor sees none of them. An agent is
initialized; it is logged in again if that needs nothing of the user. Then each session is resumed,
or else loaded with the replayed history suppressed, and gets its mode, model and options again. If
neither is supported, or both are refused, a session without any prompt is set up anew
(`session_names` keeps its id). Any other is lost, and reported so; without the params of its set-
up, each is. One that is loaded without any history may have lost its conversation, and is reported
so; an agent that resumes a session says nothing of it. Other state of a proxy is lost with its
process.

Each request but the login has `start_timeout`, so that the messages queued for the component do not
wait forever; one that is not answered in time fails the replay, and so does an answer of another
protocol version. A login has 10 s at most, and may fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

from conductor.acp import asks_for_history, session_id_of
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import ConnectionClosed, RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.awaited_response import AwaitedResponse
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import (
    decoded_members,
    join_members,
    members_or_empty,
    object_members,
)
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, RawMember
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import Logger
from conductor.routing.component import RestartOutcome
from conductor.routing.link import Link
from conductor.routing.proxy_meta import with_restart_marker
from conductor.routing.session_log import SetupRecord, forwarded_names
from conductor.routing.session_settings import KINDS, SET_MODE, SettingsLog, set_value
from conductor.routing.stage import (
    EVERY,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StagedPort,
)
from conductor.routing.trace import TracedOwnRequests
from conductor.setting_forms import state_after
from conductor.supervision.initialization import Initialization

if TYPE_CHECKING:
    from conductor.routing.session_names import SessionNames

__all__ = [
    "Replay",
    "ReplayFailed",
    "real_state_updates",
    "session_resume_methods",
]

_MAX_LOGIN_SECONDS: Final = 10.0
_CONVERSATION: Final = re.compile(rb'"(?:user|agent)_(?:message|thought)|"tool_call')
"""In an update that repeats a part of a conversation."""
_PAYLOADS_DROPPED: Final = "its set-up is not kept any more (max_session_log_bytes)"


class ReplayFailed(Exception):
    """The restarted component cannot continue for its previous process; the text is a predicate."""


@attrs.define(eq=False, repr=False)
class Replay:
    """The replays of one component. `seconds` is the time for each request; `settings` are those of
    an agent."""

    link: Link
    seconds: float
    log: Logger
    settings: SettingsLog | None = None
    traced: TracedOwnRequests | None = None
    """Shows the requests of the replay, in a traced chain."""
    _names: SessionNames | None = attrs.field(default=None, init=False)
    """Names of the sessions that were set up anew; `None` if there are none."""
    _own_requests: _OwnRequests = attrs.field(init=False)

    async def run(self, initialization: Initialization) -> RestartOutcome:
        """Repeat handshake and session set-up to the new process; returns what was not restored.

        Raises `ReplayFailed`.
        """
        self._own_requests = _OwnRequests(self.link, self.traced)
        try:
            with _inserted(self.link.plain, self._own_requests):
                result = await self._initialize(initialization)
                if self.settings is None:
                    return RestartOutcome(await self._set_up_proxy())
                self.settings.paused = True
                return await self._restore_agent(result)
        except (RequestError, ConnectionClosed) as exc:
            raise ReplayFailed(f"could not be initialized again: {exc}") from exc
        finally:
            if self.settings is not None:
                self.settings.paused = False

    async def _initialize(self, initialization: Initialization) -> Mapping[str, Any]:
        """Repeat the handshake; returns the decoded result.

        Raises `RequestError`, and `ReplayFailed` if the protocol version differs from the first
        one.
        """
        session_log = self.link.session_log
        record = session_log.initialize
        assert record is not None
        assert record.params is not None
        known = {"initialize": record.successor_result} if record.successor_result else {}
        initialization.reply = self._own_requests.respond
        params = record.params
        if self.link.role == "proxy":
            params = with_restart_marker(params, session_log.sessions)
        call = self._own_requests.expect_response("initialize", params)
        with self._answering(known):
            initialization.begin(call, params)
            await self._own_requests.answer(call)
        result = initialization.result or {}
        assert record.result is not None
        recorded = decoded_members(record.result)
        before, version = (each.get("protocolVersion", 1) for each in (recorded, result))
        if before != version:
            session_log.initialize = record
            raise ReplayFailed(
                f"answered `initialize` with protocol version {version} after its restart, and "
                f"with {before} before"
            )
        return result

    async def _set_up_proxy(self) -> list[str]:
        """Repeat the set-up of every session to a proxy; returns the ids of those that it
        refused, and of those with a set-up that is not kept.

        Raises `ConnectionClosed` and `ReplayFailed`.
        """
        refused = []
        for session, record in list(self.link.session_log.sessions.items()):
            if record.params is None or record.result is None:
                self.log.warning("session replay failed", session=session, error=_PAYLOADS_DROPPED)
                refused.append(session)
                continue
            known_result = record.successor_result or record.result
            try:
                with self._answering(dict.fromkeys(forwarded_names(record.method), known_result)):
                    await self._request(record.method, _without_history(record.params))
            except RequestError as exc:
                self.log.warning("session replay failed", session=session, error=str(exc))
                refused.append(session)
        return refused

    def _answering(self, known: Mapping[str, bytes]) -> AbstractContextManager[None]:
        """Answer requests of a proxy to its successor with these results, by method, meanwhile."""
        return _inserted(self.link.enveloped or self.link.plain, _RecordedAnswers(known))

    async def _restore_agent(self, answer: Mapping[str, Any]) -> RestartOutcome:
        """Resume or load every session in a new agent process; returns what was not restored.

        Raises `ConnectionClosed` and `ReplayFailed`.
        """
        session_log = self.link.session_log
        await self._log_in_again(answer)
        resume_methods = session_resume_methods(answer)
        has_lost_login = False
        lost, emptied = [], []
        # Sessions that may be set up anew come last: the agent then knows the ids of all others.
        records = sorted(
            session_log.sessions.items(), key=lambda item: not item[1].has_conversation
        )
        for session, record in records:
            if record.params is None:
                self.log.warning("session replay failed", session=session, error=_PAYLOADS_DROPPED)
            methods = resume_methods + ("session/new",) * (not record.has_conversation)
            for method in methods if record.params is not None else ():
                try:
                    if method == "session/new":
                        result = await self._set_up_anew(session)
                        has_lost_login = False  # gemini refuses to load an unknown session so
                    elif method == "session/load":
                        result, has_history = await self._load(session, record)
                        if record.has_conversation and not has_history:
                            emptied.append(session)
                    else:
                        result = await self._request(method, _resume_params(session, record))
                    break
                except RequestError as exc:
                    self.log.warning("session replay failed", session=session, error=str(exc))
                    has_lost_login |= exc.code == AUTHENTICATION_REQUIRED
            else:
                lost.append(session)
                session_log.forget(session)
                continue
            await self._restore_settings(session, result)
        return RestartOutcome(lost, emptied, has_lost_login)

    async def _load(self, session: str, record: SetupRecord) -> tuple[bytes, bool]:
        """Load a session with its history suppressed, which the client has seen; returns the raw
        result, and whether there was any.

        Raises `RequestError`, `ConnectionClosed` and `ReplayFailed`.
        """
        history, port = _ReplayedHistory(session), self.link.plain
        with _inserted(port, history):
            self._own_requests.on_answer = lambda: port.remove(history)  # it ends here
            result = await self._request("session/load", _resume_params(session, record))
        return result, history.has_conversation

    async def _set_up_anew(self, session: str) -> bytes:
        """Repeat the set-up of a session without any prompt, which keeps its id for the client.

        Returns the raw result. Raises `RequestError`, `ConnectionClosed` and `ReplayFailed`.
        """
        sessions, port = self.link.session_log.sessions, self.link.plain
        params = sessions[session].params
        assert params is not None
        if self._names is None:
            from conductor.routing.session_names import SessionNames

            self._names = SessionNames(sessions)
            port.insert(self._names)
        self._names.awaited = session
        agents_session = session
        try:
            result = await self._request("session/new", params)
            agents_session = self._names.agents_id(session)
        finally:
            self._names.awaited = None
            if self._names.are_equal:
                port.remove(self._names)
                self._names = None
        if session_id_of(result) != session:
            raise RequestError(INTERNAL_ERROR, "session/new was answered without a new session id")
        self.log.info("session set up anew", session=session, agents_session=agents_session)
        return result

    async def _restore_settings(self, session: str, result: bytes) -> None:
        """Repeat the requests that set mode, model and options of a session.

        The client gets the real values of those that the agent refuses. `result` is the agent's to
        the resumption. Raises `ConnectionClosed` and `ReplayFailed`.
        """
        session_log = self.link.session_log
        settings = session_log.sessions[session].settings
        accepted, refused = [], []
        for method, option in list(settings):
            params = settings[method, option]
            try:
                accepted.append((method, params, await self._request(method, params)))
            except RequestError as exc:
                names = {"option": option} if option else {}
                self.log.warning(
                    "setting not restored", session=session, method=method, **names, error=str(exc)
                )
                session_log.log_setting(session, (method, option), None)
                refused.append(method)
        for params in real_state_updates(session, refused, result, accepted):
            self.link.plain.neighbour.notify(SESSION_UPDATE, params)

    async def _log_in_again(self, answer: Mapping[str, Any]) -> None:
        """Repeat the login of the previous process, if that needs nothing of the user.

        A login that fails does not end the restart: the agent asks for it. Raises
        `ConnectionClosed`.
        """
        record = self.link.session_log.login
        if record is None or record.params is None or not _is_silent(record.params, answer):
            return
        error = "no answer"
        with trio.move_on_after(min(self.seconds, _MAX_LOGIN_SECONDS)):
            try:
                await self._own_requests.send_request_and_wait(record.method, record.params)
                return
            except RequestError as exc:
                error = str(exc)
        self.log.warning("login after the restart failed", error=error)

    async def _request(self, method: str, params: bytes) -> bytes:
        with trio.move_on_after(self.seconds):
            return await self._own_requests.send_request_and_wait(method, params)
        raise ReplayFailed(f"did not answer {method} within {self.seconds:g} s (start_timeout)")


class _OwnRequests(Stage):
    """Sends requests of the conductor itself and waits for their responses, as long as it is
    inserted; neither passes the rest of the chain. `traced` shows them, in a traced chain."""

    __slots__ = ("_link", "_pending", "_traced", "on_answer")

    name = "own requests"
    sent: frozenset[str] = EVERY

    def __init__(self, link: Link, traced: TracedOwnRequests | None) -> None:
        self._link = link
        self._traced = traced
        self._pending: dict[InFlightRequest, AwaitedResponse] = {}
        self.on_answer: Callable[[], None] | None = None
        """Called with the next answer, before any later message."""

    def expect_response(self, method: str, params: bytes) -> InFlightRequest:
        """An in-flight request with this as originator; the caller sends it now."""
        call = InFlightRequest(method, self, target=self._link.plain)
        self._pending[call] = AwaitedResponse()
        if self._traced is not None:
            self._traced.sent(call, method, params)
        return call

    async def answer(self, call: InFlightRequest) -> bytes:
        """Wait for the response; returns the raw result. Raises `RequestError` for an error."""
        try:
            return await self._pending[call].wait()
        finally:
            del self._pending[call]

    async def send_request_and_wait(self, method: str, params: bytes) -> bytes:
        """Send a request, ahead of queued messages, and wait for its raw result.

        Raises `RequestError`, and `ConnectionClosed` if the component is not running.
        """
        if self._link.connection is None:
            raise ConnectionClosed(f"{self._link.name} is not running")
        call = self.expect_response(method, params)
        self.port.send(self, call, method, params)
        return await self.answer(call)

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        """As originator: take the response."""
        pending = self._pending.get(call)
        if pending is not None:
            if self._traced is not None:
                self._traced.answered(call, result, error)
            on_answer, self.on_answer = self.on_answer, None
            if on_answer is not None:
                on_answer()
            pending.set(result, error)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        if call.source is self:
            self.respond(call, result, error)
        else:
            forward(call, result, error)


@contextmanager
def _inserted(port: StagedPort, stage: Stage) -> Iterator[None]:
    port.insert(stage)
    try:
        yield
    finally:
        port.remove(stage)


class _RecordedAnswers(Stage):
    """Answers requests of a component in the place of its successor."""

    __slots__ = ("_results", "received")

    name = "recorded answers"

    def __init__(self, results: Mapping[str, bytes]) -> None:
        self._results = results
        self.received = frozenset(results)

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self.port.respond(call, self._results[method], None)


class _ReplayedHistory(Stage):
    """Drops the notifications of a session."""

    __slots__ = ("_session", "has_conversation")

    name = "replayed history"
    received: frozenset[str] = EVERY

    def __init__(self, session: str) -> None:
        self._session = session
        self.has_conversation: bool = False
        """Whether a part of a conversation was among them."""

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if session_id_of(params) != self._session:
            forward(method, params)
        elif params is not None and _CONVERSATION.search(params) is not None:
            self.has_conversation = True


def real_state_updates(
    session: str,
    refused: Sequence[str],
    result: bytes,
    accepted: Sequence[tuple[str, bytes, bytes]],
) -> Iterator[bytes]:
    """Updates with the real mode and options of a session, where settings are not restored: the
    client shows what was set before. Raw params of `session/update`; none if nothing was refused.

    `refused` are the methods of the refused settings, `result` is that of the resumption of the
    session, `accepted` are the settings that the agent has accepted, in order: method, params and
    result. All raw.
    """
    if not refused:
        return
    state = {name: each for name, each in decoded_members(result).items() if each}
    for method, params, answer in accepted:
        value = set_value(method, params)
        state = state_after(state, KINDS[method], value, decoded_members(answer))
    updates: list[dict[str, Any]] = []
    modes, options = state.get("modes"), state.get("configOptions")
    if SET_MODE in refused and isinstance(modes, dict) and "currentModeId" in modes:
        mode = modes["currentModeId"]
        updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
    if isinstance(options, list):
        updates.append({"sessionUpdate": "config_option_update", "configOptions": options})
    for update in updates:
        yield msgspec.json.encode({"sessionId": session, "update": update})


def _is_silent(params: bytes, answer: Mapping[str, Any]) -> bool:
    """Whether a login has all that it needs: keys in its params (`_meta`), or in the environment.

    Any other may open a browser.
    """
    try:
        members = members_or_empty(params)
        id = decode_value(members.pop("methodId", b"null"))
    except ValueError:
        return False
    if members:
        return True
    offered = answer.get("authMethods")
    methods = [each for each in offered if isinstance(each, dict)] if offered else []
    return any(
        each.get("type") == "env_var" and each.get("id", each.get("methodId")) == id
        for each in methods
    )


def session_resume_methods(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """The methods that restore a session, in order of preference, by the `initialize` result."""
    if answer.get("protocolVersion") == 2:
        return ("session/resume",)  # every agent of version 2 has it (RFD v2 required methods)
    capabilities = _object(answer.get("agentCapabilities"))
    sessions = _object(capabilities.get("sessionCapabilities"))
    can_resume = sessions.get("resume") is not None
    can_load = capabilities.get("loadSession") is True
    return ("session/resume",) * can_resume + ("session/load",) * can_load


def _resume_params(session: str, record: SetupRecord) -> bytes:
    """Raw params of `session/resume` or `session/load`, from those of the session's set-up."""
    try:
        params = members_or_empty(record.params or b"{}")
    except ValueError:  # the id alone does not restore it: the session will be lost
        params = {}
    params["sessionId"] = msgspec.json.encode(session)
    params.setdefault("mcpServers", b"[]")
    return _without_history(join_members(params))


def _without_history(params: bytes) -> bytes:
    """Raw params of a set-up, without `replayFrom`: the client has the history already."""
    if not asks_for_history(params):
        return params
    return join_members({k: v for k, v in object_members(params).items() if k != "replayFrom"})


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
