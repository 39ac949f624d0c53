"""`@tool`: methods as MCP tools, with name, description and argument schema from the method.

A parameter annotated `ToolCall` gets the caller and is not part of the argument schema.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, Protocol, TypeVar, overload

import msgspec

from conductor.errors import RequestError
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.peers import AgentPeer, ResponseCallback

__all__ = ["ToolCall", "ToolHost", "server_of_tools", "tool", "tool_names"]

F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "__acp_tool__"


class ToolCall(msgspec.Struct, frozen=True):
    """The caller of a tool. A parameter with this annotation gets it and is hidden from the
    model."""

    session_id: str | None
    """The ACP session id; `None` if the agent connected before its session had an id."""
    server_id: str
    connection_id: str | None
    """`None` in the stateless binding."""


class _ToolMark(msgspec.Struct, frozen=True):
    name: str | None
    description: str | None


class ToolHost(Protocol):
    """The part of `conductor.proxy.Proxy` that its tools need.

    A protocol, so that the modules of the tools do not import `conductor.proxy.base`, which imports
    them.
    """

    _acp_toolbox: Any
    """The `ToolServers` of the proxy; not set before they are first needed."""

    @property
    def agent(self) -> AgentPeer: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> ResponseCallback: ...

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    def mcp_servers(self) -> Sequence[Any]: ...

    def has_tools_for(self, session: dict[str, Any]) -> bool: ...


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...


def tool(
    function: Any = None, /, *, name: str | None = None, description: str | None = None
) -> Any:
    """Mark an async method as an MCP tool.

    Name, description and argument schema come from the method's name, docstring and annotations;
    `name` and `description` override them.
    """

    def mark(marked: F) -> F:
        if not inspect.iscoroutinefunction(marked):
            shown = getattr(marked, "__qualname__", repr(marked))
            raise DeclarationError(f"@tool: {shown} must be `async def`")
        setattr(marked, _MARK, _ToolMark(name, description))
        return marked

    return mark if function is None else mark(function)


def server_of_tools(plugin: ToolHost, call: Callable[[], ToolCall]) -> Any:
    """Return an `MCPServer` with the plugin's tools, for one connection; `call` returns its
    `ToolCall`."""
    from mcp.server.mcpserver import MCPServer

    from conductor import __version__

    server = MCPServer(type(plugin).__name__, version=__version__)
    for name in tool_names(type(plugin)):
        method = getattr(plugin, name)
        mark: _ToolMark = getattr(method, _MARK)
        text, arguments = _parse_docstring(inspect.getdoc(method) or "")
        server.add_tool(
            _bound(method, arguments, call),
            name=mark.name or name,
            description=mark.description or text,
        )
    return server


def _bound(
    method: Callable[..., Awaitable[Any]],
    descriptions: dict[str, str],
    caller: Callable[[], ToolCall],
) -> Callable[..., Awaitable[Any]]:
    """Return the method as a function of the arguments that the model passes."""
    from pydantic import Field

    signature = inspect.signature(method, eval_str=True)
    own = [p.name for p in signature.parameters.values() if p.annotation is ToolCall]
    shown = []
    for parameter in signature.parameters.values():
        if parameter.name in own:
            continue
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        if parameter.name in descriptions:
            annotation = Annotated[annotation, Field(description=descriptions[parameter.name])]
        shown.append(parameter.replace(annotation=annotation))

    async def call(**arguments: Any) -> Any:
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            return await method(**arguments, **{name: caller() for name in own})
        except RequestError as exc:
            raise ToolError(str(exc)) from exc  # a tool error is shown to the model

    call.__name__ = method.__name__
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in shown}
    return call


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


def tool_names(cls: type) -> list[str]:
    """Return the names of the tool methods in definition order, bases first."""
    found: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if hasattr(value, _MARK):
                found[name] = None
    return [name for name in found if hasattr(getattr(cls, name, None), _MARK)]
