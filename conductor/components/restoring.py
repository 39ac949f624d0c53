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

from conductor.components.asking import Asking
from conductor.components.initialization import Initialization
from conductor.errors import RequestError
from conductor.frames import UNUSUAL
from conductor.log import Logger
from conductor.routing.recollection import Recollection, SetUp
from conductor.routing.restarting import from_members, marked, members_of
from conductor.routing.wire import Wire

__all__ = ["NotRestored", "initialize_again", "restore_agent", "restore_proxy", "ways_back"]

_NOT_KEPT: Final = "its set-up is not kept any more (max_session_log_bytes)"


class NotRestored(Exception):
    """A component that was started again cannot take its predecessor's place; the text is for
    people."""


async def initialize_again(
    wire: Wire, initialization: Initialization, recollection: Recollection
) -> Mapping[str, Any]:
    """Repeat the handshake; returns the component's answer.

    Raises `RequestError`, and `NotRestored` for another protocol version than the client has.
    """
    recorded = recollection.initialize
    assert recorded is not None
    assert recorded.params is not None
    asking = Asking(wire)
    call = asking.expect("initialize")
    wire.answers = {"initialize": recorded.inner_result} if recorded.inner_result else {}
    initialization.reply = asking.respond
    params = recorded.params
    if wire.role == "proxy":
        params = marked(params, recollection.sessions)
    initialization.begin(call, params)
    try:
        await asking.answer(call)
    finally:
        wire.answers = {}
    result = initialization.result or {}
    assert recorded.result is not None
    before, now = _version(_decoded(recorded.result)), _version(result)
    if before != now:
        recollection.initialize = recorded
        raise NotRestored(
            f"answered `initialize` with protocol version {now} after its restart, and with "
            f"{before} before"
        )
    return result


def _decoded(result: bytes) -> Any:
    try:
        return msgspec.json.decode(result)
    except UNUSUAL:
        return None  # as `Initialization.result` has it


def _version(result: Any) -> Any:
    return result.get("protocolVersion", 1) if isinstance(result, dict) else 1


async def restore_proxy(
    wire: Wire, recollection: Recollection, seconds: float, log: Logger
) -> list[str]:
    """Repeat the set-up of every session to a proxy; returns the sessions that it refused.

    Raises `ConnectionClosed` and `NotRestored`.
    """
    asking = Asking(wire)
    refused = []
    for session, set_up in list(recollection.sessions.items()):
        if set_up.params is None or set_up.result is None:
            log.warning("session was not restored", session=session, error=_NOT_KEPT)
            refused.append(session)
            continue
        wire.answers = {set_up.method: set_up.inner_result or set_up.result}
        try:
            await _ask(asking, set_up.method, set_up.params, seconds)
        except RequestError as exc:
            log.warning("session was not restored", session=session, error=str(exc))
            refused.append(session)
        finally:
            wire.answers = {}
    return refused


async def restore_agent(
    wire: Wire,
    recollection: Recollection,
    answer: Mapping[str, Any],
    seconds: float,
    log: Logger,
) -> list[str]:
    """Resume or load every session in a new agent process; returns the sessions that are lost.

    Raises `ConnectionClosed` and `NotRestored`.
    """
    asking = Asking(wire)
    methods = ways_back(answer)
    lost = []
    for session, set_up in list(recollection.sessions.items()):
        if set_up.params is None:
            log.warning("session was not restored", session=session, error=_NOT_KEPT)
        for method in methods if set_up.params is not None else ():
            wire.swallowed = session if method == "session/load" else None
            try:
                await _ask(asking, method, _back_to(session, set_up), seconds)
                break
            except RequestError as exc:
                log.warning("session was not restored", session=session, error=str(exc))
            finally:
                wire.swallowed = None
        else:
            lost.append(session)
            recollection.forget(session)
    return lost


async def _ask(asking: Asking, method: str, params: bytes, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await asking.ask(method, params)
        return
    raise NotRestored(f"did not answer {method} within {seconds:g} s (start_timeout)")


def ways_back(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """How an agent takes up a session that it does not hold, by its answer to `initialize`."""
    if answer.get("protocolVersion") == 2:
        return ("session/resume",)  # every agent of version 2 has it (RFD v2 required methods)
    capabilities = _object(answer.get("agentCapabilities"))
    sessions = _object(capabilities.get("sessionCapabilities"))
    resumes = sessions.get("resume") is not None
    loads = capabilities.get("loadSession") is True
    return ("session/resume",) * resumes + ("session/load",) * loads


def _back_to(session: str, set_up: SetUp) -> bytes:
    """The params of the set-up, for this session by name; without what only a new one has."""
    try:
        params = members_of(set_up.params or b"{}")
    except RecursionError:  # nobody can take up a session with no more than its id; it is lost
        params = {}
    params["sessionId"] = msgspec.json.encode(session)
    params.setdefault("mcpServers", b"[]")
    params.pop("replayFrom", None)
    return from_members(params)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
