"""`Context` of a running `@tool`, `@resource` or `@prompt` call: session, progress, logging."""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from conductor.errors import RequestError
from conductor.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND
from conductor.proxy.peers import ClientPeer
from conductor.proxy.sessions import Session

if TYPE_CHECKING:
    from mcp.server import mcpserver
    from mcp.server.elicitation import ElicitationResult, UrlElicitationResult
    from mcp.types import CreateMessageResult, SamplingMessage
    from pydantic import BaseModel

__all__ = ["Context", "LogLevel", "RequestSender"]

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
RequestSender: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""Sends a request of the MCP SDK to the agent's MCP client; returns a result of the given type."""

_NO_ELICITATION: Final = (
    "The user cannot be asked: neither the agent's MCP client nor the ACP client supports {mode} "
    "elicitation"
)
_NO_SAMPLING: Final = (
    "The agent's MCP client supports no sampling: prompt an agent instead "
    "(open_agent, self.agent.prompt_turn)"
)


@attrs.define(eq=False, repr=False)
class Context:
    """The running call of an MCP method. A parameter with this annotation gets it and is hidden
    from the agent.

        @tool
        async def delete(self, name: str, context: Context) -> str:
            '''Delete a note.'''
            answer = await context.elicit(f"Delete {name}?", {"type": "object", "properties": {}})
            if answer.action != "accept":
                return "The user does not want that."
            self.notes.pop(name)
            return "Deleted."

    It is valid until the method returns. Methods that send requests raise `RequestError` if the
    answer is an error, or if no one can answer. Works with all revisions of MCP, those without
    requests of servers (2026-07-28) included: there the call is answered with the question, and
    goes on when the agent repeats it with the answer.
    """

    sdk: mcpserver.Context[Any, Any]
    """The context of the MCP SDK, for everything else. Its requests (`sdk.elicit`) work only in MCP
    revisions before 2026-07-28."""
    server_id: str
    connection_id: str | None
    """`None` in the binding of MCP over ACP without connections."""
    _find_session: Callable[[], Session]
    _client: ClientPeer
    _send: RequestSender

    @property
    def session(self) -> Session:
        """The ACP session that the server was declared for: `cwd`, `say()`, `notice()`, `ask()`.

        Its `id` is empty if the agent connects before it has answered `session/new`. Mode, title
        and `tool_calls` are up to date only in a class with handlers of events (`@on_session`).
        """
        return self._find_session()

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the agent how far the call is: `progress` of `total`, in any unit.

        Not sent if the agent has not asked for the progress of the call.
        """
        await self.sdk.report_progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message (text or JSON) to the agent's MCP client, which may show it.

        In MCP 2026-07-28 it is sent only if the agent has asked for messages of this level. Use
        `session.notice()` for what the user shall see.
        """
        from mcp.shared.exceptions import MCPDeprecationWarning

        with warnings.catch_warnings():  # deprecated by MCP 2026-07-28, for which it still works
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            sending = self.sdk.session.send_log_message(
                level, data, logger, related_request_id=self.sdk.request_id
            )
        await sending

    async def elicit(
        self, message: str, schema: type[BaseModel] | Mapping[str, Any]
    ) -> ElicitationResult[Any]:
        """Ask the user for values; `schema` is a pydantic model or a JSON schema of an object, with
        fields of primitive types.

        Returns the SDK's `ElicitationResult`: `action` is `accept`, `decline` or `cancel`; when
        accepted, `data` is the model, or a dict for a JSON schema. The agent's MCP client asks the
        user; if it does not support that, the ACP client does. Raises `RequestError` if neither
        does, or if the values do not fit the model.
        """
        from mcp.server.elicitation import (
            AcceptedElicitation,
            CancelledElicitation,
            DeclinedElicitation,
            render_elicitation_schema,
        )
        from mcp.types import ElicitRequest, ElicitRequestFormParams
        from pydantic import ValidationError

        if isinstance(schema, Mapping):
            model, wanted = None, dict(schema)
        else:
            model, wanted = schema, render_elicitation_schema(schema)
        request = ElicitRequest(
            params=ElicitRequestFormParams(message=message, requested_schema=wanted)
        )
        action, content = await self._elicit("form", request)
        if action == "decline":
            return DeclinedElicitation()
        if action != "accept":
            return CancelledElicitation()
        values = content or {}
        try:
            data: Any = values if model is None else model.model_validate(values)
        except ValidationError as exc:
            fields = sorted({".".join(str(part) for part in each["loc"]) for each in exc.errors()})
            text = f"The answer of the user does not fit the schema: {', '.join(fields)}"
            raise RequestError(INVALID_PARAMS, text) from exc
        return AcceptedElicitation.model_construct(action="accept", data=data)

    async def elicit_url(self, message: str, url: str) -> UrlElicitationResult:
        """Ask the user to open `url`, for a login or a payment; the result has only an `action`.

        `accept` means that the user agrees, not that the page is done. Asked and raised as by
        `elicit`.
        """
        from mcp.server.elicitation import (
            AcceptedUrlElicitation,
            CancelledElicitation,
            DeclinedElicitation,
        )
        from mcp.types import ElicitRequest, ElicitRequestURLParams

        params = ElicitRequestURLParams(
            message=message, url=url, elicitation_id=f"elicitation:{os.urandom(8).hex()}"
        )
        action, _ = await self._elicit("url", ElicitRequest(params=params))
        if action == "accept":
            return AcceptedUrlElicitation()
        return DeclinedElicitation() if action == "decline" else CancelledElicitation()

    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
    ) -> CreateMessageResult:
        """Let the agent's model answer `messages`, a text of the user or messages of the SDK.

        `content` of the result has the answer, `model` its author. Raises `RequestError` if the
        agent's MCP client does not support sampling, as most.
        """
        from mcp.types import (
            CreateMessageRequest,
            CreateMessageRequestParams,
            CreateMessageResult,
            SamplingMessage,
            TextContent,
        )

        can = self.sdk.client_capabilities
        if can is None or can.sampling is None:
            raise RequestError(METHOD_NOT_FOUND, _NO_SAMPLING)
        if isinstance(messages, str):
            content = TextContent(type="text", text=messages)
            messages = [SamplingMessage(role="user", content=content)]
        params = CreateMessageRequestParams(
            messages=list(messages),
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
        )
        result: CreateMessageResult = await self._send(
            CreateMessageRequest(params=params), CreateMessageResult
        )
        return result

    async def _elicit(
        self, mode: Literal["form", "url"], request: Any
    ) -> tuple[str, dict[str, Any] | None]:
        """Return the action and the content of the answer."""
        from mcp.types import ElicitResult

        if self._agent_can_elicit(mode):
            result = await self._send(request, ElicitResult)
            return result.action, result.content
        session = self.session
        offered = session.chain.client_capabilities.get("elicitation")
        if not session.id or not isinstance(offered, Mapping) or offered.get(mode) is None:
            raise RequestError(METHOD_NOT_FOUND, _NO_ELICITATION.format(mode=mode))
        asked = request.params.model_dump(by_alias=True, mode="json", exclude_none=True)
        answer = await self._client.request(
            "elicitation/create", {**asked, "mode": mode, "sessionId": session.id}
        )
        return str(answer.get("action")), answer.get("content")

    def _agent_can_elicit(self, mode: Literal["form", "url"]) -> bool:
        can = self.sdk.client_capabilities
        elicitation = can.elicitation if can is not None else None
        if elicitation is None:
            return False
        # `{}` means forms (MCP 2025-11-25, elicitation, capabilities).
        return (
            elicitation.url is not None
            if mode == "url"
            else (elicitation.form is not None or elicitation.url is None)
        )
