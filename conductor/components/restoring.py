"""Brings a component that was started again to where its predecessor was.

A proxy goes through its handshake and the set-up of every open session once more; what it passes on
meanwhile is answered from the record, so its successor sees nothing of it. An agent is initialized
as before, then each session is resumed, or else loaded with the replayed history swallowed; what it
can do neither with is lost, and said to be. What a proxy knew beyond that is lost with its process.
"""

from __future__ import annotations

from typing import Any

import msgspec

from conductor.components.asking import Asking
from conductor.components.initialization import Initialization
from conductor.errors import RequestError
from conductor.log import Logger
from conductor.messages import Payload
from conductor.routing.recollection import Recollection, SetUp
from conductor.routing.wire import Wire

__all__ = ["initialize_again", "restore_agent", "restore_proxy"]


async def initialize_again(
    wire: Wire, initialization: Initialization, recollection: Recollection
) -> dict[str, Any]:
    """Repeat the handshake; returns the component's answer. Raises `RequestError`."""
    recorded = recollection.initialize
    assert recorded is not None
    asking = Asking(wire)
    call = asking.expect("initialize")
    wire.answers = {"initialize": recorded.inner_result} if recorded.inner_result else {}
    initialization.reply = asking.respond
    initialization.begin(call, recorded.params)
    try:
        result = await asking.answer(call)
    finally:
        wire.answers = {}
    decoded = msgspec.json.decode(result)
    return decoded if isinstance(decoded, dict) else {}


async def restore_proxy(wire: Wire, recollection: Recollection, log: Logger) -> list[str]:
    """Repeat the set-up of every session to a proxy; returns the sessions that it refused."""
    asking = Asking(wire)
    refused = []
    for session, set_up in list(recollection.sessions.items()):
        wire.answers = {set_up.method: set_up.inner_result or set_up.result}
        try:
            await asking.ask(set_up.method, set_up.params)
        except RequestError as exc:
            log.warning("session was not restored", session=session, error=str(exc))
            refused.append(session)
        finally:
            wire.answers = {}
    return refused


async def restore_agent(
    wire: Wire, recollection: Recollection, capabilities: dict[str, Any], log: Logger
) -> list[str]:
    """Resume or load every session in a new agent process; returns the sessions that are lost."""
    asking = Asking(wire)
    method = _way_back(capabilities)
    lost = []
    for session, set_up in list(recollection.sessions.items()):
        if method is not None:
            wire.swallowed = session if method == "session/load" else None
            try:
                await asking.ask(method, _back_to(session, set_up))
                continue
            except RequestError as exc:
                log.warning("session was not restored", session=session, error=str(exc))
            finally:
                wire.swallowed = None
        lost.append(session)
        del recollection.sessions[session]
    return lost


def _way_back(result: dict[str, Any]) -> str | None:
    """How an agent takes up a session that it does not hold, by its answer to `initialize`."""
    if result.get("protocolVersion") == 2:
        return "session/resume"  # every agent of version 2 has it (RFD v2 required methods)
    capabilities = _object(result.get("agentCapabilities"))
    if "resume" in _object(capabilities.get("sessionCapabilities")):
        return "session/resume"
    return "session/load" if capabilities.get("loadSession") is True else None


def _back_to(session: str, set_up: SetUp) -> bytes:
    """The params of the set-up, for this session by name; without what only a new one has."""
    params: dict[str, Payload] = msgspec.json.decode(set_up.params, type=dict[str, msgspec.Raw])
    params["sessionId"] = msgspec.Raw(msgspec.json.encode(session))
    params.setdefault("mcpServers", msgspec.Raw(b"[]"))
    params.pop("replayFrom", None)
    return msgspec.json.encode(params)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
