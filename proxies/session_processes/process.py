"""One process of `session_processes`: an agent that is started for one session of the client.

The agent may give its session an id that another process has given; the client then knows it by
another id, which is replaced in the messages of both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from conductor.error_codes import INTERNAL_ERROR
from conductor.proxy import (
    ChainFileError,
    ComponentError,
    ConnectionClosed,
    LocalProtocolError,
    Proxy,
    RemoteProtocolError,
    RequestError,
    SecondAgent,
    details_are_withheld,
    get_logger,
)

__all__ = ["ProcessEnded", "SessionProcess"]

log = get_logger(component="session_processes")

_NOT_STARTED: Final = (
    ChainFileError,
    ComponentError,
    ConnectionClosed,
    LocalProtocolError,
    RemoteProtocolError,
)
_NEEDED: Final = frozenset(
    {
        *("session/new", "session/fork", "session/prompt", "session/list", "session/status"),
        *("session/set_config_option", "session/set_title"),
    }
)
"""Requests that need a result: `null` is a mistake of the agent."""


class ProcessEnded(RequestError):
    """The process has ended before its session."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "session_processes: the agent of this session has ended")


@attrs.define(eq=False)
class SessionProcess:
    """An agent in a process of its own, with one session."""

    claim: Callable[[str, SessionProcess], str]
    """Returns the client's id for that of the agent."""
    client_id: str = attrs.field(default="", init=False)
    agent_id: str = attrs.field(default="", init=False)
    stopped: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the agent has stopped."""
    _agent: SecondAgent | None = attrs.field(default=None, init=False)
    _failure: RequestError | None = attrs.field(default=None, init=False)
    _started: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self, proxy: Proxy, login: tuple[str, dict[str, Any]] | None) -> None:
        """Start the agent, repeat the login, and keep it until `end()` is called."""
        try:
            async with proxy.open_agent(relay=self._for_client) as agent:
                if login is not None:
                    await agent.request(*login)
                self._agent = agent
                self._started.set()
                await self._ended.wait()
        except RequestError as exc:
            self._failure = RequestError(exc.code, f"session_processes: {exc.message}", exc.data)
        except _NOT_STARTED as exc:
            log.warning("agent of a session not started", error=str(exc))
            problem = "the agent did not start" if details_are_withheld() else str(exc)
            self._failure = RequestError(INTERNAL_ERROR, f"session_processes: {problem}")
        finally:
            self._agent = None
            self._started.set()
            self.stopped.set()

    async def wait_started(self) -> None:
        """Wait for the start. Raises `RequestError` if it fails."""
        await self._started.wait()
        if self._failure is not None:
            raise self._failure

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request of the client. Raises `RequestError`."""
        if self._agent is None:
            raise ProcessEnded
        try:
            result = await self._agent.request(method, self._for_agent(params))
        except ConnectionClosed:
            raise ProcessEnded from None
        except RequestError as exc:
            if self.is_ending:
                raise ProcessEnded from None
            exc.data = self._for_client(method, exc.data)
            raise
        if not isinstance(result, dict) and (result is not None or method in _NEEDED):
            text = f"session_processes: the agent's answer to {method} is not an object"
            raise RequestError(INTERNAL_ERROR, text)
        return result

    async def listed(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """The session as the agent lists it; `None` if it does not."""
        try:
            result = await self.request("session/list", params)
        except RequestError:
            return None
        sessions = result.get("sessions") if isinstance(result, dict) else None
        for each in sessions if isinstance(sessions, list) else ():
            if isinstance(each, dict) and each.get("sessionId") == self.agent_id:
                return {**each, "sessionId": self.client_id}
        return None

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the client."""
        if self._agent is not None:
            await self._agent.notify(method, self._for_agent(params))

    @property
    def is_ending(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """Stop the process, in order."""
        self._ended.set()

    def opened(self, agent_id: str, client_id: str | None = None) -> None:
        """Note the id of the session, when it is first seen."""
        if not self.agent_id:
            self.agent_id = agent_id
            self.client_id = client_id or self.claim(agent_id, self)

    # ----------------------------------------------------------------------------------------------

    def _for_agent(self, params: dict[str, Any]) -> dict[str, Any]:
        is_own = self.client_id and params.get("sessionId") == self.client_id
        return {**params, "sessionId": self.agent_id} if is_own else params

    def _for_client(self, method: str, params: Any) -> Any:
        id = params.get("sessionId") if isinstance(params, dict) else None
        if isinstance(id, str):
            self.opened(id)  # some agents send updates before they answer
        return {**params, "sessionId": self.client_id} if id == self.agent_id else params
