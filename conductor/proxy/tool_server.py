"""The MCP server of a proxy's tools: an `MCPServer` of the SDK.

Imported only when an agent connects, because the import of the SDK takes half a second.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import attrs
from mcp.server import mcpserver
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp.types import ToolAnnotations
from pydantic import Field

from conductor import __version__
from conductor.errors import LocalProtocolError, RequestError
from conductor.proxy.sessions import Session
from conductor.proxy.tools import Context, ToolMethod, tool_methods

__all__ = ["tool_server"]

_SDK_CONTEXT: Final = "sdk_context"
"""The parameter with the SDK's context in functions that are given to the SDK."""


class _ToolServer(MCPServer[Any]):
    """An `MCPServer` that tells the user of results that are not what the method's annotation
    says."""

    def __init__(self, name: str) -> None:
        super().__init__(name, version=__version__, log_level="WARNING")
        self.bound: dict[str, _Bound] = {}
        """By the tool's name."""

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


def tool_server(plugin: Any, find_session: Callable[[], Session]) -> MCPServer[Any]:
    """Return a server with the plugin's tools, for the session that `find_session` returns.

    Raises `TypeError`, which names the method, if its annotations have no JSON schema.
    """
    server = _ToolServer(type(plugin).__name__)
    for method in tool_methods(type(plugin)):
        bound = server.bound[method.name] = _Bound(plugin, method, find_session)
        mark, given = method.mark, method.mark.annotations
        documented, arguments = _parse_docstring(inspect.getdoc(bound.method) or "")
        try:
            annotations = None if given is None else ToolAnnotations.model_validate(given)
            server.add_tool(
                bound.function(arguments),
                method.name,
                mark.title,
                mark.description or documented,
                annotations,
            )
        except Exception as exc:
            reason = str(exc).partition("\n")[0]
            where = f"{type(plugin).__name__}.{method.attribute}"
            raise TypeError(f"{where}: the MCP SDK cannot offer it: {reason}") from exc
    return server


@attrs.frozen
class _Bound:
    """A tool of one plugin, for one session."""

    plugin: Any
    spec: ToolMethod
    find_session: Callable[[], Session]

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
        shown.append(
            inspect.Parameter(
                _SDK_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=mcpserver.Context
            )
        )

        async def call(**arguments: Any) -> Any:
            return await self._call(arguments.pop(_SDK_CONTEXT), arguments)

        signature = inspect.signature(self.method, eval_str=True)
        call.__name__ = self.spec.attribute
        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in shown}
        return call

    async def _call(self, sdk: mcpserver.Context[Any, Any], arguments: dict[str, Any]) -> Any:
        for name in self.spec.contexts:
            arguments[name] = Context(self.find_session(), sdk)
        try:
            return await self.method(**arguments)
        except (MCPError, ToolError):
            raise
        except RequestError as exc:
            raise ToolError(str(exc)) from exc  # a tool error is shown to the model
        except Exception as exc:
            self.log_failure(exc)
            raise ToolError("Internal error") from exc

    def log_failure(self, exc: Exception) -> None:
        """Log the failure and tell the user: the model is not told more than that it failed."""
        session, spec = self.find_session().id, self.spec
        known = {"session": session} if session else {}
        self.plugin._acp_runtime.handler_failed(
            exc, task=f"tool {spec.attribute}", handler=spec.location, **known
        )


_ARGUMENTS: Final = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_SECTION: Final = re.compile(r"^\S.*:\s*$")


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description of the tool and those of its arguments."""
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
