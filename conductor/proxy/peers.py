"""A plugin's two peers: the client and the agent, to send requests and notifications of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from conductor.errors import LocalProtocolError
from conductor.proxy.conversion import decode_params, decode_result, encode
from conductor.proxy.prompt_turn import PromptTurn, TurnCollector
from conductor.schema.base import Object

if TYPE_CHECKING:
    from conductor.schema.v1 import (
        PermissionOption,
        RequestPermissionResponse,
        SessionUpdate,
        ToolCallUpdate,
    )

__all__ = ["AgentPeer", "ClientPeer", "NotificationTap", "Peer", "ResponseCallback"]

ResponseCallback: TypeAlias = Callable[[bytes | None, bytes | None], None]
"""Called with a raw result or a raw error, one of them."""

NotificationTap: TypeAlias = Callable[[bytes | None], bool]
"""Called with the raw params of a notification, in its lane; True keeps it from going on."""

_ABSENT: Final = object()
_MESSAGE_OVERHEAD: Final = 100
"""Bytes that a message takes, besides its params."""
_methods: dict[type, str] = {}


@attrs.frozen(eq=False, repr=False)
class Peer:
    """The neighbour in one direction, with whatever components are between."""

    name: str
    _request: Callable[[str, bytes | None], Awaitable[bytes]]
    _notify: Callable[[str, bytes | None], None]
    _ask: Callable[[str, bytes | None, ResponseCallback], Callable[[], None]]
    _tap: Callable[[str, NotificationTap], Callable[[], None]]
    _release: Callable[[], None]
    _wait_for_readers: Callable[[int], Awaitable[None]]

    async def request(
        self, method: str | Object, params: Any = None, *, result: Any = _ABSENT
    ) -> Any:
        """Send a request and return its result, as the type `result`.

        `request("session/set_mode", {…})` returns a `dict`; `request(SetSessionModeRequest(…))`
        knows its method, and the type of the answer. Raises `RequestError` when it is answered with
        an error. While it waits, the handler's lane goes on; when the answer comes, the handler
        holds the lane that it came on.
        """
        if isinstance(method, Object):
            params, annotation = method, type(method)
            method = _method_of(annotation)
            if result is _ABSENT:
                from conductor.proxy.annotations import result_type

                result = result_type(method, annotation)
        elif result is _ABSENT:
            result = dict
        return decode_result(await self._request(method, encode(params)), result)

    async def notify(self, method: str | Object, params: Any = None) -> None:
        """Send a notification; when this returns, it is queued behind what was sent before.

        Whoever sends more than others read waits here for them.
        """
        if isinstance(method, Object):
            method, params = _method_of(type(method)), method
        raw = encode(params)
        self._notify(method, raw)
        await self._wait_for_readers(_MESSAGE_OVERHEAD + len(raw or b""))

    def send(self, method: str, params: Any = None) -> None:
        """`notify`, for code that may not wait."""
        self._notify(method, encode(params))

    def ask(self, method: str, params: Any, answered: ResponseCallback) -> Callable[[], None]:
        """Send a request without waiting for it, and return what cancels it.

        `answered` is called in the lane that the answer comes on, so what was sent before the
        answer has been dealt with and nothing sent after it has begun. It must not wait or raise.
        A request that was cancelled is answered all the same.
        """
        return self._ask(method, encode(params), answered)


class ClientPeer(Peer):
    """The client, with what one asks of clients (version 1 of the protocol)."""

    __slots__ = ()

    async def request_permission(
        self,
        *,
        session_id: str,
        tool_call: ToolCallUpdate | Mapping[str, Any],
        options: Iterable[PermissionOption | Mapping[str, Any]],
    ) -> RequestPermissionResponse:
        """Ask the user whether a tool may run; the answer's `outcome` says what was chosen."""
        from conductor.schema.v1 import RequestPermissionResponse

        params = {"sessionId": session_id, "toolCall": tool_call, "options": list(options)}
        result: RequestPermissionResponse = await self.request(
            "session/request_permission", params, result=RequestPermissionResponse
        )
        return result

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """The content of a file as the client has it, unsaved changes included."""
        from conductor.schema.v1 import ReadTextFileResponse

        params = _without_none(sessionId=session_id, path=path, line=line, limit=limit)
        result: ReadTextFileResponse = await self.request(
            "fs/read_text_file", params, result=ReadTextFileResponse
        )
        return result.content

    async def write_text_file(self, session_id: str, path: str, content: str) -> None:
        """Have the client write a file."""
        params = {"sessionId": session_id, "path": path, "content": content}
        await self.request("fs/write_text_file", params)

    async def update(self, session_id: str, update: SessionUpdate | Mapping[str, Any]) -> None:
        """Send a session update, as the agent does."""
        await self.notify("session/update", {"sessionId": session_id, "update": update})

    async def say(self, session_id: str, text: str) -> None:
        """Show text to the user as if the agent had said it."""
        content = {"type": "text", "text": text}
        await self.update(session_id, {"sessionUpdate": "agent_message_chunk", "content": content})


class AgentPeer(Peer):
    """The agent, with what one asks of agents."""

    __slots__ = ()

    async def prompt_turn(self, session_id: str, prompt: str | Sequence[Any]) -> PromptTurn:
        """Send a prompt, a text or content blocks, and return what came of it.

        The client sees the agent's updates, unless the session is `muted`. In version 2 of the
        protocol the turn ends after the answer, so the handler then holds no lane.
        """
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        collector = TurnCollector(session_id)
        remove = self._tap("session/update", collector.take)
        try:
            params = encode({"sessionId": session_id, "prompt": blocks})
            answer = decode_params(await self._request("session/prompt", params), dict)
            if "stopReason" not in answer:
                self._release()
                await collector.idle.wait()
        finally:
            remove()
        return PromptTurn(answer.get("stopReason") or collector.stop_reason, collector.text, answer)

    async def cancel(self, session_id: str) -> None:
        """Ask the agent to end the session's turn."""
        await self.notify("session/cancel", {"sessionId": session_id})

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] = (), **more: Any) -> str:
        """Open a session of the proxy's own, which the client knows nothing of; returns its id."""
        params = {"cwd": cwd, "mcpServers": list(mcp_servers), **more}
        session_id: str = (await self.request("session/new", params))["sessionId"]
        return session_id

    async def set_mode(self, session_id: str, mode_id: str) -> None:
        """Put the session into another mode."""
        await self.request("session/set_mode", {"sessionId": session_id, "modeId": mode_id})


def _method_of(cls: type) -> str:
    method = _methods.get(cls)
    if method is None:
        from conductor.proxy.annotations import method_of

        method = method_of(cls)
        if method is None:
            raise LocalProtocolError(
                f"{cls.__name__} is not the params of any method; "
                'write request("<wire method>", params)'
            )
        _methods[cls] = method
    return method


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
