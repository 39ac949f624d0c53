"""Peers of a plugin: the client and the agent, with methods for the requests that they answer.

`AgentPeer.prompt_turn` collects the output of a turn; `is_turn_output` tells which updates
`Proxy.muted` hides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, overload

import attrs
import msgspec
import trio

from conductor.acp.turns import Ended, SessionTurns, Turns
from conductor.errors import LocalProtocolError
from conductor.proxy.conversion import decode_params, decode_result, encode
from conductor.schema.base import Object, Params

if TYPE_CHECKING:
    from conductor.schema.v1 import (
        ElicitationSchema,
        PermissionOption,
        RequestPermissionResponse,
        SessionUpdate,
        TextContent,
        ToolCallUpdate,
    )

__all__ = [
    "SESSION_STATE_UPDATES",
    "AgentPeer",
    "ClientPeer",
    "DeferredAnswer",
    "NotificationTap",
    "Peer",
    "PromptTurn",
    "ResponseCallback",
    "TurnCollector",
    "check_text",
    "is_turn_output",
    "text",
    "without_none",
]

R = TypeVar("R")

SESSION_STATE_UPDATES: Final = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "session_info_update",
        "usage_update",
    }
)
"""Kinds of updates of session state, which are not output of a turn: they may arrive between
the chunks of one message, and a client that misses one shows a wrong state."""

ResponseCallback: TypeAlias = Callable[[bytes | None, bytes | None], None]
DeferredAnswer: TypeAlias = Callable[[Any, Any], None]
"""Called once with `(result, error)` as raw JSON; exactly one of them is not `None`."""

NotificationTap: TypeAlias = Callable[[bytes | None], bool]
"""Called with the raw params of a notification, in its lane; returning True drops it."""

_ABSENT: Final = object()
_MESSAGE_OVERHEAD: Final = 100
"""Estimated size of a message without its params, in bytes."""
_methods: dict[type, str] = {}


@attrs.frozen(eq=False, repr=False)
class Peer:
    """Sends messages in one direction, to the client or to the agent, through the components in
    between."""

    name: str
    _request: Callable[[str, bytes | None], Awaitable[bytes]]
    _notify: Callable[[str, bytes | None], None]
    _ask: Callable[[str, bytes | None, ResponseCallback], Callable[[], None]]
    _tap: Callable[[str, NotificationTap], Callable[[], None]]
    _release: Callable[[], None]
    _wait_for_readers: Callable[[int], Awaitable[None]]

    @overload
    async def request(self, method: Params[R], /) -> R: ...
    @overload
    async def request(self, method: str, params: Any = None) -> Any: ...
    @overload
    async def request(self, method: str | Object, params: Any = None, *, result: type[R]) -> R: ...
    @overload
    async def request(self, method: str | Object, params: Any = None, *, result: Any) -> Any: ...
    async def request(
        self, method: str | Object, params: Any = None, *, result: Any = _ABSENT
    ) -> Any:
        """Send a request and return its result, decoded to the type `result`.

        `request("session/set_mode", {…})` returns a `dict`; `request(SetSessionModeRequest(…))`
        takes the method and the result type from the schema. Raises `RequestError` if the response
        is an error. While it waits, the handler's lane continues; when the response arrives, the
        handler holds the lane of the response.
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
        """Send a notification; it is queued, in order, when this returns.

        Waits while the receiver reads more slowly than the plugin sends.
        """
        if isinstance(method, Object):
            method, params = _method_of(type(method)), method
        raw = encode(params)
        self._notify(method, raw)
        await self._wait_for_readers(_MESSAGE_OVERHEAD + len(raw or b""))

    def send(self, method: str, params: Any = None) -> None:
        """Send a notification without back-pressure, for code that cannot wait."""
        self._notify(method, encode(params))

    def ask(self, method: str, params: Any, answered: ResponseCallback) -> Callable[[], None]:
        """Send a request without waiting for the response; return a function that cancels it.

        `answered` is called in the lane of the response: everything sent before the response has
        been handled, nothing sent after it has begun. It must not block or raise. It is also called
        for a cancelled request.
        """
        return self._ask(method, encode(params), answered)


class ClientPeer(Peer):
    """The client, with methods for requests that clients answer. For the others there are schema
    types: `await self.client.request(v1.CreateTerminalRequest(…))`.

    Elicitations are the same in protocol versions 1 and 2; files and permission requests are those
    of version 1. `Session.ask` asks for permission in both.
    """

    __slots__ = ()

    async def request_permission(
        self,
        *,
        session_id: str,
        tool_call: ToolCallUpdate | Mapping[str, Any],
        options: Iterable[PermissionOption | Mapping[str, Any]],
    ) -> RequestPermissionResponse:
        """Ask the user for permission to run a tool; `outcome` of the result has the choice."""
        from conductor.schema.v1 import RequestPermissionResponse

        params = {"sessionId": session_id, "toolCall": tool_call, "options": list(options)}
        return await self.request(
            "session/request_permission", params, result=RequestPermissionResponse
        )

    async def elicit(
        self,
        message: str,
        requested_schema: ElicitationSchema | Mapping[str, Any],
        *,
        session_id: str,
        tool_call_id: str | None = None,
    ) -> dict[str, Any] | None:
        """Ask the user to fill in a form; return the values by field (empty if there are none).

        `requested_schema` describes the fields, as a JSON Schema of an object. `None` means that
        the user declined or dismissed the question. For clients with the capability
        `elicitation.form`; others answer with a `RequestError`.
        """
        params = without_none(
            mode="form",
            message=message,
            requestedSchema=requested_schema,
            sessionId=session_id,
            toolCallId=tool_call_id,
        )
        answer = await self.request("elicitation/create", params)
        return dict(answer.get("content") or {}) if answer.get("action") == "accept" else None

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Return the content of a file as the client has it, unsaved changes included."""
        from conductor.schema.v1 import ReadTextFileResponse

        params = without_none(sessionId=session_id, path=path, line=line, limit=limit)
        read = await self.request("fs/read_text_file", params, result=ReadTextFileResponse)
        return read.content

    async def write_text_file(self, session_id: str, path: str, content: str) -> None:
        """Write a file through the client."""
        params = {"sessionId": session_id, "path": path, "content": content}
        await self.request("fs/write_text_file", params)

    async def update(self, session_id: str, update: SessionUpdate | Mapping[str, Any]) -> None:
        """Send a `session/update` notification."""
        await self.notify("session/update", {"sessionId": session_id, "update": update})

    async def say(self, session_id: str, text: str) -> None:
        """Send text to the user as an agent message chunk."""
        check_text(text, "say()")
        content = {"type": "text", "text": text}
        await self.update(session_id, {"sessionUpdate": "agent_message_chunk", "content": content})


@attrs.frozen(eq=False, repr=False)
class AgentPeer(Peer):
    """The agent, with methods for prompts.

    `request(…)` sends all others, such as `v1.LoadSessionRequest(…)` or extension methods.
    """

    _seen_turns: Callable[[], Turns[Any]]
    """Those that the plugin sees: of the client's prompts."""
    _turns: Turns[TurnCollector] = attrs.field(factory=lambda: Turns(2), init=False)
    """Those of `prompt_turn`. In version 1 the answer to a prompt has the stop reason."""

    async def prompt_turn(self, session_id: str, prompt: str | Sequence[Any]) -> PromptTurn:
        """Send a prompt (a text or content blocks), wait for the end of the turn and return it.

        The client sees the agent's updates, unless the session is `muted`. In version 2 of the
        protocol the turn ends after the response, so the handler then holds no lane.
        """
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        self._turns.reports_running |= self._seen_turns().reports_running
        collector = TurnCollector(session_id, self._turns.of(session_id))
        remove = self._tap("session/update", collector.take)
        try:
            params = encode({"sessionId": session_id, "prompt": blocks})
            answer = decode_params(await self._request("session/prompt", params), dict)
            collector.answered(answer)
            if not collector.ended.is_set():
                self._release()
                await collector.ended.wait()
        finally:
            remove()
            collector.answered(None)
        return PromptTurn(collector.stop_reason, collector.text, answer)

    async def cancel(self, session_id: str) -> None:
        """Cancel the session's running turn (`session/cancel`)."""
        self._turns.of(session_id).cancel(trio.current_time())
        await self.notify("session/cancel", {"sessionId": session_id})

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] = (), **more: Any) -> str:
        """Open a session of the proxy's own, unknown to the client; returns its id."""
        params = {"cwd": cwd, "mcpServers": list(mcp_servers), **more}
        session_id: str = (await self.request("session/new", params))["sessionId"]
        return session_id


class PromptTurn(msgspec.Struct, frozen=True):
    """The outcome of a prompt turn."""

    stop_reason: str
    text: str
    """Text of the agent's message chunks, without its thoughts."""
    result: dict[str, Any]
    """The result of `session/prompt`."""

    def __repr__(self) -> str:
        return f"PromptTurn(stop_reason={self.stop_reason!r}, text={self.text!r})"


class TurnCollector:
    """Collects the agent's text in one session, from the sending of a prompt to the end of its
    turn, which sets `ended`. `turns` are those of the session, over its prompts."""

    __slots__ = ("_pieces", "_turns", "ended", "session_id", "stop_reason")

    def __init__(self, session_id: str, turns: SessionTurns[Any]) -> None:
        self.session_id: str = session_id
        self.stop_reason: str = "end_turn"
        self.ended: trio.Event = trio.Event()
        self._turns: SessionTurns[Any] = turns
        self._pieces: list[str] = []
        turns.prompt_sent(self, trio.current_time())

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def answered(self, result: Mapping[str, Any] | None) -> None:
        """Record the answer to the prompt; `None` for an error, and if nobody waits any more."""
        reason = None if result is None else result.get("stopReason")
        self._end(
            self._turns.prompt_answered(
                self, trio.current_time(), accepted=result is not None, stop_reason=reason
            )
        )

    def take(self, params: bytes | None) -> bool:
        """Record an update. A `NotificationTap` that never drops."""
        update = _update_of(params, self.session_id)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                content = update.get("content")
                if isinstance(content, dict) and isinstance(content.get("text"), str):
                    self._pieces.append(content["text"])
            case "state_update":
                self._end(self._turns.take(update, trio.current_time()))
        return False

    def _end(self, ended: Ended[Any] | None) -> None:
        if ended is not None and self in ended.prompts:
            self.stop_reason = ended.stop_reason or self.stop_reason
            self.ended.set()


def is_turn_output(params: bytes | None, session_id: str) -> bool:
    """Whether an update is output of a turn of this session, not a change of session state."""
    kind = _update_of(params, session_id).get("sessionUpdate")
    return kind is not None and kind not in SESSION_STATE_UPDATES


def _update_of(params: bytes | None, session_id: str) -> dict[str, Any]:
    try:
        message = decode_params(params, dict)
    except ValueError:
        return {}
    if not isinstance(message, dict) or message.get("sessionId") != session_id:
        return {}
    update = message.get("update")
    return update if isinstance(update, dict) else {}


def text(text: str) -> TextContent:
    """Return a text block for prompts and updates, in typed messages and in plain params."""
    from conductor.schema.v1 import TextContent  # lazy: importing the schema types is slow

    return TextContent(text=text)


def check_text(text: object, function: str) -> None:
    """Raise `TypeError` for what an author gives for a text; bytes would be sent in base64."""
    if not isinstance(text, str):
        raise TypeError(f"{function} takes a str, not {type(text).__name__}")


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


def without_none(**members: Any) -> dict[str, Any]:
    """The members that are not `None`."""
    return {name: value for name, value in members.items() if value is not None}
