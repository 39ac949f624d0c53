"""Replay: brings a restarted component to the state of its previous process.

A proxy gets its handshake and the set-up of every open session again; the requests that it forwards
meanwhile are answered from the session log, so its successor sees none of them. An agent is
initialized; it is logged in again if that needs nothing of the user. Then each session is resumed,
or else loaded with the replayed history suppressed, and gets its mode, model and options again
(`restored_settings`). If neither is supported, or both are refused, a session without any prompt is
set up anew (`session_names` keeps its id). Any other is lost, and reported so; without the params
of its set-up, each is. One that is loaded without any history may have lost its conversation, and
is reported so; an agent that resumes a session says nothing of it. Other state of a proxy is lost
with its process.

Each request but the login has `start_timeout`, so that the messages queued for the component do not
wait forever; one that is not answered in time fails the replay, and so does an answer of another
protocol version. A login has 10 s at most, and may fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import trio

from conductor.acp import session_id_of
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import ConnectionClosed, RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decoded_members, join_members, members_or_empty
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import Logger
from conductor.routing.component import RestartOutcome
from conductor.routing.link import Link
from conductor.routing.restart_marker import with_restart_marker
from conductor.routing.session_log import SessionLog, SetupRecord, forwarded_names
from conductor.routing.stage import SendRequest, Stage
from conductor.supervision.initialization import Initialization
from conductor.supervision.own_requests import OwnRequests
from conductor.supervision.restored_settings import real_state_updates

__all__ = [
    "ReplayFailed",
    "replay",
    "session_resume_methods",
]

_MAX_LOGIN_SECONDS: Final = 10.0
_PAYLOADS_DROPPED: Final = "its set-up is not kept any more (max_session_log_bytes)"


class _RecordedAnswers(Stage):
    """Answers requests of a component in the place of its successor."""

    __slots__ = ("_results", "received")

    name = "recorded answers"

    def __init__(self, results: Mapping[str, bytes]) -> None:
        self._results = results
        self.received = frozenset(results)

    def receive_request(
        self, forward: SendRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self.port.respond(call, self._results[method], None)


class ReplayFailed(Exception):
    """The restarted component cannot continue for its previous process; the text is a predicate."""


async def replay(
    link: Link, initialization: Initialization, seconds: float, log: Logger
) -> RestartOutcome:
    """Repeat handshake and session set-up to the new process; returns what was not restored.

    `seconds` is the time for each request. Raises `ReplayFailed`.
    """
    session_log = link.session_log
    try:
        result = await _replay_initialize(link, initialization, session_log)
        if link.role == "proxy":
            return RestartOutcome(await _replay_to_proxy(link, session_log, seconds, log))
        with _paused_settings(link):
            return await _replay_to_agent(link, session_log, result, seconds, log)
    except (RequestError, ConnectionClosed) as exc:
        raise ReplayFailed(f"could not be initialized again: {exc}") from exc


async def _replay_initialize(
    link: Link, initialization: Initialization, session_log: SessionLog
) -> Mapping[str, Any]:
    """Repeat the handshake; returns the decoded result.

    Raises `RequestError`, and `ReplayFailed` if the protocol version differs from the first one.
    """
    record = session_log.initialize
    assert record is not None
    assert record.params is not None
    own_requests = OwnRequests(link)
    known = {"initialize": record.successor_result} if record.successor_result else {}
    initialization.reply = own_requests.respond
    params = record.params
    if link.role == "proxy":
        params = with_restart_marker(params, session_log.sessions)
    call = own_requests.expect_response("initialize", params)
    with _answering(link, known):
        initialization.begin(call, params)
        await own_requests.answer(call)
    result = initialization.result or {}
    assert record.result is not None
    recorded = decoded_members(record.result)
    recorded_version, version = (each.get("protocolVersion", 1) for each in (recorded, result))
    if recorded_version != version:
        session_log.initialize = record
        raise ReplayFailed(
            f"answered `initialize` with protocol version {version} after its restart, and with "
            f"{recorded_version} before"
        )
    return result


async def _replay_to_proxy(
    link: Link, session_log: SessionLog, seconds: float, log: Logger
) -> list[str]:
    """Repeat the set-up of every session to a proxy; returns the ids of those that it
    refused, and of those with a set-up that is not kept.

    Raises `ConnectionClosed` and `ReplayFailed`.
    """
    own_requests = OwnRequests(link)
    refused = []
    for session, record in list(session_log.sessions.items()):
        if record.params is None or record.result is None:
            log.warning("session replay failed", session=session, error=_PAYLOADS_DROPPED)
            refused.append(session)
            continue
        known_result = record.successor_result or record.result
        known = dict.fromkeys(forwarded_names(record.method), known_result)
        try:
            with _answering(link, known):
                await _request_within(own_requests, record.method, record.params, seconds)
        except RequestError as exc:
            log.warning("session replay failed", session=session, error=str(exc))
            refused.append(session)
    return refused


@contextmanager
def _answering(link: Link, known: Mapping[str, bytes]) -> Iterator[None]:
    """Answer requests of a proxy to its successor with these results, by method, meanwhile."""
    port, stage = link.enveloped or link.plain, _RecordedAnswers(known)
    port.insert(stage)
    try:
        yield
    finally:
        port.remove(stage)


async def _replay_to_agent(
    link: Link,
    session_log: SessionLog,
    answer: Mapping[str, Any],
    seconds: float,
    log: Logger,
) -> RestartOutcome:
    """Resume or load every session in a new agent process; returns what was not restored.

    Raises `ConnectionClosed` and `ReplayFailed`.
    """
    own_requests = OwnRequests(link)
    needs_login = not await _log_in_again(own_requests, session_log, answer, seconds, log)
    resume_methods = session_resume_methods(answer)
    has_lost_login = False
    lost, emptied = [], []
    # Sessions that may be set up anew come last: the agent then knows the ids of all others.
    records = sorted(session_log.sessions.items(), key=lambda item: not item[1].has_conversation)
    for session, record in records:
        link.history_seen = False
        if record.params is None:
            log.warning("session replay failed", session=session, error=_PAYLOADS_DROPPED)
        methods = resume_methods + ("session/new",) * (not record.has_conversation)
        for method in methods if record.params is not None else ():
            link.suppressed_session = session if method == "session/load" else None
            try:
                if method == "session/new":
                    answer_of_session = await _set_up_anew(
                        link, own_requests, session, seconds, log
                    )
                    has_lost_login = False  # gemini refuses to load an unknown session so
                else:
                    params = _resume_params(session, record)
                    answer_of_session = await _request_within(own_requests, method, params, seconds)
                break
            except RequestError as exc:
                log.warning("session replay failed", session=session, error=str(exc))
                has_lost_login |= exc.code == AUTHENTICATION_REQUIRED
            finally:
                link.suppressed_session = None
        else:
            lost.append(session)
            session_log.forget(session)
            continue
        if method == "session/load" and record.has_conversation and not link.history_seen:
            emptied.append(session)
        await _restore_settings(link, own_requests, session, answer_of_session, seconds, log)
    return RestartOutcome(lost, emptied, has_lost_login, needs_login and not session_log.sessions)


async def _set_up_anew(
    link: Link, own_requests: OwnRequests, session: str, seconds: float, log: Logger
) -> bytes:
    """Repeat the set-up of a session without any prompt, which keeps its id for the client.

    Returns the raw result. Raises `RequestError`, `ConnectionClosed` and `ReplayFailed`.
    """
    from conductor.routing.session_names import SessionNames

    connection, params = link.connection, link.session_log.sessions[session].params
    if connection is None:
        raise ConnectionClosed(f"{link.name} is not running")
    assert params is not None
    names = link.session_names or SessionNames(link, link.session_log.sessions)
    link.session_names = connection.receiver = names
    names.awaited = session
    try:
        result = await _request_within(own_requests, "session/new", params, seconds)
    finally:
        names.awaited = None
        if names.are_equal:
            link.session_names, connection.receiver = None, link
    if session_id_of(result) != session:
        raise RequestError(INTERNAL_ERROR, "session/new was answered without a new session id")
    log.info("session set up anew", session=session, agents_session=names.agents_id(session))
    return result


async def _restore_settings(
    link: Link,
    own_requests: OwnRequests,
    session: str,
    result: bytes,
    seconds: float,
    log: Logger,
) -> None:
    """Repeat the requests that set mode, model and options of a session.

    The client gets the real values of those that the agent refuses. `result` is the agent's to
    the resumption. Raises `ConnectionClosed` and `ReplayFailed`.
    """
    settings = link.session_log.sessions[session].settings
    accepted, refused = [], []
    for method, option in list(settings):
        params = settings[method, option]
        try:
            answer = await _request_within(own_requests, method, params, seconds)
            accepted.append((method, params, answer))
        except RequestError as exc:
            names = {"option": option} if option else {}
            log.warning(
                "setting not restored", session=session, method=method, **names, error=str(exc)
            )
            link.session_log.log_setting(session, (method, option), None)
            refused.append(method)
    for params in real_state_updates(session, refused, result, accepted):
        link.plain.neighbour.notify(SESSION_UPDATE, params)


@contextmanager
def _paused_settings(link: Link) -> Iterator[None]:
    """Record nothing of what the agent tells meanwhile of its mode and options."""
    settings_log = link.settings_log
    assert settings_log is not None
    settings_log.paused = True
    try:
        yield
    finally:
        settings_log.paused = False


async def _log_in_again(
    own_requests: OwnRequests,
    session_log: SessionLog,
    answer: Mapping[str, Any],
    seconds: float,
    log: Logger,
) -> bool:
    """Repeat the login of the previous process, if that needs nothing of the user; false if that
    process was logged in and this one may not be: agents may store their logins.

    A login that fails does not end the restart: the agent asks for it. Raises
    `ConnectionClosed`.
    """
    record = session_log.login
    if record is None:
        return True
    if record.params is None or not _is_silent(record.params, answer):
        return False
    with trio.move_on_after(min(seconds, _MAX_LOGIN_SECONDS)):
        try:
            await own_requests.send_request(record.method, record.params)
            return True
        except RequestError as exc:
            log.warning("login after the restart failed", error=str(exc))
            return False
    log.warning("login after the restart failed", error="no answer")
    return False


def _is_silent(params: bytes, answer: Mapping[str, Any]) -> bool:
    """Whether a login has all that it needs: keys in its params (`_meta`), or in the environment.

    Any other may open a browser.
    """
    try:
        members = members_or_empty(params)
        id = decode_value(members.pop("methodId", b"null"))
    except (ValueError, *DECODE_ERRORS):
        return False
    if members:
        return True
    offered = answer.get("authMethods")
    methods = [each for each in offered if isinstance(each, dict)] if offered else []
    return any(
        each.get("type") == "env_var" and each.get("id", each.get("methodId")) == id
        for each in methods
    )


async def _request_within(
    own_requests: OwnRequests, method: str, params: bytes, seconds: float
) -> bytes:
    with trio.move_on_after(seconds):
        return await own_requests.send_request(method, params)
    raise ReplayFailed(f"did not answer {method} within {seconds:g} s (start_timeout)")


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
    params.pop("replayFrom", None)
    return join_members(params)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
