"""Brings a component that was started again to where its predecessor was.

A proxy goes through its handshake and the set-up of every open session once more; what it passes on
meanwhile is answered from the record, so its successor sees nothing of it. An agent is initialized
as before, then each session is resumed, or else loaded with the replayed history swallowed; what it
can do neither with is lost, and said to be. What a proxy knew beyond that is lost with its process.

Every question has `start_timeout` for its answer: what waits for the component must not wait for
ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from conductor.errors import RequestError
from conductor.jsonrpc.codec import DECODE_ERRORS, join_members, members_or_empty
from conductor.log import Logger
from conductor.routing.link import Link
from conductor.routing.restart_marker import with_restart_marker
from conductor.routing.session_log import SessionLog, SetupRecord
from conductor.supervision.initialization import Initialization
from conductor.supervision.own_requests import OwnRequests

__all__ = [
    "ReplayFailed",
    "replay_initialize",
    "replay_to_agent",
    "replay_to_proxy",
    "session_resume_methods",
]

_PAYLOADS_DROPPED: Final = "its set-up is not kept any more (max_session_log_bytes)"


class ReplayFailed(Exception):
    """A component that was started again cannot take its predecessor's place; the text is for
    people."""


async def replay_initialize(
    link: Link, initialization: Initialization, session_log: SessionLog
) -> Mapping[str, Any]:
    """Repeat the handshake; returns the component's answer.

    Raises `RequestError`, and `ReplayFailed` for another protocol version than the client has.
    """
    record = session_log.initialize
    assert record is not None
    assert record.params is not None
    own_requests = OwnRequests(link)
    call = own_requests.expect_response("initialize")
    link.recorded_results = (
        {"initialize": record.successor_result} if record.successor_result else {}
    )
    initialization.reply = own_requests.respond
    params = record.params
    if link.role == "proxy":
        params = with_restart_marker(params, session_log.sessions)
    initialization.begin(call, params)
    try:
        await own_requests.answer(call)
    finally:
        link.recorded_results = {}
    result = initialization.result or {}
    assert record.result is not None
    recorded_version, version = _version(_decoded_result(record.result)), _version(result)
    if recorded_version != version:
        session_log.initialize = record
        raise ReplayFailed(
            f"answered `initialize` with protocol version {version} after its restart, and with "
            f"{recorded_version} before"
        )
    return result


def _decoded_result(result: bytes) -> Any:
    try:
        return msgspec.json.decode(result)
    except DECODE_ERRORS:
        return None  # as `Initialization.result` has it


def _version(result: Any) -> Any:
    return result.get("protocolVersion", 1) if isinstance(result, dict) else 1


async def replay_to_proxy(
    link: Link, session_log: SessionLog, seconds: float, log: Logger
) -> list[str]:
    """Repeat the set-up of every session to a proxy; returns the sessions that it refused.

    Raises `ConnectionClosed` and `ReplayFailed`.
    """
    own_requests = OwnRequests(link)
    refused = []
    for session, record in list(session_log.sessions.items()):
        if record.params is None or record.result is None:
            log.warning("session replay failed", session=session, error=_PAYLOADS_DROPPED)
            refused.append(session)
            continue
        link.recorded_results = {record.method: record.successor_result or record.result}
        try:
            await _request_within(own_requests, record.method, record.params, seconds)
        except RequestError as exc:
            log.warning("session replay failed", session=session, error=str(exc))
            refused.append(session)
        finally:
            link.recorded_results = {}
    return refused


async def replay_to_agent(
    link: Link,
    session_log: SessionLog,
    answer: Mapping[str, Any],
    seconds: float,
    log: Logger,
) -> list[str]:
    """Resume or load every session in a new agent process; returns the sessions that are lost.

    Raises `ConnectionClosed` and `ReplayFailed`.
    """
    own_requests = OwnRequests(link)
    resume_methods = session_resume_methods(answer)
    lost = []
    for session, record in list(session_log.sessions.items()):
        if record.params is None:
            log.warning("session replay failed", session=session, error=_PAYLOADS_DROPPED)
        for method in resume_methods if record.params is not None else ():
            link.suppressed_session = session if method == "session/load" else None
            try:
                await _request_within(
                    own_requests, method, _resume_params(session, record), seconds
                )
                break
            except RequestError as exc:
                log.warning("session replay failed", session=session, error=str(exc))
            finally:
                link.suppressed_session = None
        else:
            lost.append(session)
            session_log.forget(session)
    return lost


async def _request_within(
    own_requests: OwnRequests, method: str, params: bytes, seconds: float
) -> None:
    with trio.move_on_after(seconds):
        await own_requests.send_request(method, params)
        return
    raise ReplayFailed(f"did not answer {method} within {seconds:g} s (start_timeout)")


def session_resume_methods(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """How an agent takes up a session that it does not hold, by its answer to `initialize`."""
    if answer.get("protocolVersion") == 2:
        return ("session/resume",)  # every agent of version 2 has it (RFD v2 required methods)
    capabilities = _object(answer.get("agentCapabilities"))
    sessions = _object(capabilities.get("sessionCapabilities"))
    can_resume = sessions.get("resume") is not None
    can_load = capabilities.get("loadSession") is True
    return ("session/resume",) * can_resume + ("session/load",) * can_load


def _resume_params(session: str, record: SetupRecord) -> bytes:
    """The params of the set-up, for this session by name; without what only a new one has."""
    try:
        params = members_or_empty(record.params or b"{}")
    except ValueError:  # nobody can take up a session with no more than its id; it is lost
        params = {}
    params["sessionId"] = msgspec.json.encode(session)
    params.setdefault("mcpServers", b"[]")
    params.pop("replayFrom", None)
    return join_members(params)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
