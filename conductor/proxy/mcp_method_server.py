"""The MCP server of a proxy's methods: one `MCPServer` of the SDK for each connection.

Imported only when an agent connects, because the import of the SDK takes half a second.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import attrs
from mcp.server import mcpserver
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError, UnexpectedToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resources import FunctionResource, ResourceTemplate
from mcp.shared.exceptions import MCPError
from mcp.types import InputRequiredResult, ToolAnnotations
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from conductor import __version__
from conductor.errors import LocalProtocolError, RequestError
from conductor.jsonrpc.messages import INTERNAL_ERROR
from conductor.proxy.mcp_context import Context
from conductor.proxy.mcp_methods import McpMethod, ToolCall
from conductor.proxy.mcp_questions import Conversations, send_request
from conductor.proxy.sessions import Session

__all__ = ["Caller", "server_of_methods"]

_SDK_CONTEXT: Final = "sdk_context"
"""The parameter with the SDK's context in functions that are given to the SDK."""


@attrs.frozen
class Caller:
    """The connection that calls."""

    server_id: str
    connection_id: str | None
    find_session: Callable[[], Session]


class _MethodServer(MCPServer[Any]):
    """An `MCPServer` in which resources without variables get the context, too: the SDK gives it
    to templates only."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.fixed: dict[str, ResourceTemplate] = {}
        """Resources without variables, by URI."""
        self.bound: dict[str, _Bound] = {}
        """Methods that are tools, by the tool's name."""

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: mcpserver.Context[Any, Any] | None = None,
    ) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError as exc:
            bound = self.bound[name]
            returned = f"{bound.method.__qualname__} returned what its annotation does not say"
            bound.log_failure(LocalProtocolError(f"{returned}: {exc.__cause__}"))
            raise ToolError(f"{exc}: Internal error") from exc

    async def read_resource(
        self, uri: Any, context: mcpserver.Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        template = self.fixed.get(str(uri))
        if template is None or context is None:
            return await super().read_resource(uri, context)
        made = await template.create_resource(str(uri), {}, context)
        if isinstance(made, InputRequiredResult):
            return made
        return [ReadResourceContents(content=await made.read(), mime_type=made.mime_type)]


def server_of_methods(plugin: Any, methods: Sequence[McpMethod], caller: Caller) -> Any:
    """Return an `MCPServer` with the plugin's methods, for one connection.

    Raises `TypeError`, which names the method, if its annotations have no JSON schema.
    """
    conversations = Conversations()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with conversations.running():
            yield

    server = _MethodServer(
        type(plugin).__name__, version=__version__, lifespan=lifespan, log_level="WARNING"
    )
    for method in methods:
        try:
            _add(server, method, _Bound(plugin, method, caller, conversations))
        except Exception as exc:
            reason = str(exc).partition("\n")[0]
            where = f"{type(plugin).__name__}.{method.attribute}"
            raise TypeError(f"{where}: the MCP SDK cannot offer it: {reason}") from exc
    return server


def _add(server: _MethodServer, method: McpMethod, bound: _Bound) -> None:
    mark = method.mark
    documented, arguments = _parse_docstring(inspect.getdoc(bound.method) or "")
    description = mark.description or documented
    function = bound.function(arguments)
    match mark.kind:
        case "tool":
            given = mark.annotations
            annotations = None if given is None else ToolAnnotations.model_validate(given)
            server.bound[method.name] = bound
            server.add_tool(function, method.name, mark.title, description, annotations)
        case "prompt":
            server.add_prompt(Prompt.from_function(function, method.name, mark.title, description))
        case "resource":
            told: Any = {
                "name": method.name,
                "title": mark.title,
                "description": description,
                "mime_type": mark.mime_type or "text/plain",
            }
            if method.variables:
                server.resource(mark.uri, **told)(function)
            else:
                server.fixed[mark.uri] = ResourceTemplate.from_function(function, mark.uri, **told)
                # Listed; `_MethodServer.read_resource` reads it.
                server.add_resource(FunctionResource(uri=mark.uri, fn=str, **told))


@attrs.frozen
class _Bound:
    """A method, called for one connection."""

    plugin: Any
    spec: McpMethod
    caller: Caller
    conversations: Conversations

    @property
    def method(self) -> Callable[..., Awaitable[Any]]:
        found: Callable[..., Awaitable[Any]] = getattr(self.plugin, self.spec.attribute)
        return found

    def function(self, descriptions: dict[str, str]) -> Callable[..., Awaitable[Any]]:
        """Return the method as a function of the agent's arguments and the SDK's context."""
        shown = []
        for parameter in self.spec.arguments:
            annotation = parameter.annotation
            if parameter.name in descriptions:
                annotation = Annotated[annotation, Field(description=descriptions[parameter.name])]
            shown.append(parameter.replace(annotation=annotation, kind=parameter.KEYWORD_ONLY))
        name = self.spec.sdk_context or _SDK_CONTEXT
        shown.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=mcpserver.Context)
        )

        async def call(**arguments: Any) -> Any:
            return await self._call(arguments.pop(name), arguments)

        signature = inspect.signature(self.method, eval_str=True)
        call.__name__ = self.spec.attribute
        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in shown}
        return call

    async def _call(self, sdk: mcpserver.Context[Any, Any], arguments: dict[str, Any]) -> Any:
        try:
            if Context not in self.spec.injected.values():
                return await self._run(sdk, arguments, None)
            if sdk.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                context = self._context(sdk, lambda asked, result: send_request(sdk, asked, result))
                return await self._run(sdk, arguments, context)
            return await self.conversations.call(
                sdk,
                lambda send: self._context(sdk, send),
                lambda context: self._run(sdk, arguments, context),
            )
        except (MCPError, ToolError, ResourceError):
            raise
        except RequestError as exc:
            if self.spec.mark.kind == "tool":
                raise ToolError(str(exc)) from exc  # a tool error is shown to the model
            raise MCPError(exc.code, exc.message, exc.data) from exc
        except Exception as exc:
            self.log_failure(exc)
            if self.spec.mark.kind == "tool":
                raise ToolError("Internal error") from exc
            raise MCPError(INTERNAL_ERROR, "Internal error") from exc

    async def _run(
        self, sdk: mcpserver.Context[Any, Any], arguments: dict[str, Any], context: Context | None
    ) -> Any:
        own: dict[str, Any] = {} if self.spec.sdk_context is None else {self.spec.sdk_context: sdk}
        for name, kind in self.spec.injected.items():
            own[name] = context if kind is Context else self._tool_call()
        return await self.method(**arguments, **own)

    def _context(self, sdk: mcpserver.Context[Any, Any], send: Any) -> Context:
        caller = self.caller
        return Context(
            sdk,
            caller.server_id,
            caller.connection_id,
            caller.find_session,
            self.plugin.client,
            send,
        )

    def _tool_call(self) -> ToolCall:
        caller = self.caller
        return ToolCall(caller.find_session().id or None, caller.server_id, caller.connection_id)

    def log_failure(self, exc: Exception) -> None:
        """Log the failure and tell the user: the model is not told more than that it failed."""
        session = self.caller.find_session().id
        known = {"session": session} if session else {}
        spec = self.spec
        self.plugin._acp_runtime.handler_failed(
            exc, task=f"{spec.mark.kind} {spec.attribute}", handler=spec.location, **known
        )


_ARGUMENTS: Final = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_SECTION: Final = re.compile(r"^\S.*:\s*$")


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description of the method and those of its arguments."""
    head, *rest = _ARGUMENTS.split(text, maxsplit=1)
    found: dict[str, str] = {}
    current: str | None = None
    after: list[str] = []
    for line in rest[0].splitlines() if rest else ():
        match = _ARGUMENT.match(line)
        if after or _SECTION.match(line):
            after.append(line)
        elif match and (current is None or len(match[1]) <= 4):
            current = match[2]
            found[current] = match[3]
        elif current is not None and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
    rest_of_it = "\n".join(after).strip()
    return "\n\n".join(part for part in (head.strip(), rest_of_it) if part), found
