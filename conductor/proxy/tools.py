"""`@tool`: methods of a proxy that the agent's model can call, over MCP.

    @tool
    async def search(self, words: str, context: Context) -> list[str]:
        '''Search the notes.'''

Name, description and schema come from the method: its name, docstring and annotations. A parameter
annotated `Context` is filled here and not part of the schema. Mistakes are reported when the class
is created. The MCP SDK, on whose server the tools are registered (`tool_server`), is imported only
when an agent connects: the import takes half a second.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import attrs

from conductor.proxy.annotations import DeclarationError
from conductor.proxy.middleware import location_of
from conductor.proxy.sessions import Session

if TYPE_CHECKING:
    from mcp.server import mcpserver

__all__ = ["Context", "ToolMethod", "tool", "tool_methods"]

F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "__acp_tool__"


@attrs.frozen(eq=False)
class Context:
    """The running call of a tool. A parameter with this annotation gets it and is hidden from the
    agent.

        @tool
        async def delete(self, name: str, context: Context) -> str:
            '''Delete a note.'''
            if not await context.session.ask(f"Delete {name}", kind="delete"):
                return "The user does not want that."
            self.notes.pop(name)
            return "Deleted."

    If the agent cancels the call, so is the method.
    """

    session: Session
    """The ACP session that the server was declared for: `cwd`, `say()`, `notice()`, `ask()`.

    Its `id` is empty if the agent connects before it has answered `session/new`. Mode, title and
    `tool_calls` are up to date only in a class with handlers of events (`@on_session`)."""
    sdk: mcpserver.Context[Any, Any] = attrs.field(repr=False)
    """The context of the MCP SDK: `await context.sdk.report_progress(2, 10)`."""


@attrs.frozen
class _ToolMark:
    """Arguments of the decorator."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Any = None


@attrs.frozen(eq=False)
class ToolMethod:
    """A method that is a tool, checked."""

    attribute: str
    """The name of the method."""
    mark: _ToolMark
    arguments: tuple[inspect.Parameter, ...]
    """The parameters that the agent fills; annotations are evaluated."""
    contexts: tuple[str, ...]
    """The parameters that get the `Context`."""
    location: str
    """`file:line` of the method."""

    @property
    def name(self) -> str:
        """Its name for the agent."""
        return self.mark.name or self.attribute


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Any = None,
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Any = None,
) -> Any:
    """Mark an async method as an MCP tool, which the agent's model can call.

    Name, description and argument schema come from the method's name, docstring (with `Args:`) and
    annotations; `name` and `description` override them. `annotations` are the MCP `ToolAnnotations`
    or a dict, such as `{"readOnlyHint": True}`. The result is what the method returns: text, JSON,
    or content of the MCP SDK. A `RequestError` is shown to the model; any other exception is
    logged and told to the user, and the model is shown that the tool failed.
    """

    def decorate(marked: Any) -> Any:
        if not inspect.iscoroutinefunction(marked):
            shown = getattr(marked, "__qualname__", repr(marked))
            raise DeclarationError(
                f"@tool: {shown} must be `async def`"
                + ("" if inspect.isfunction(marked) else f", not a {type(marked).__name__}")
            )
        setattr(marked, _MARK, _ToolMark(name, title, description, annotations))
        return marked

    return decorate if function is None else decorate(function)


def tool_methods(cls: type) -> list[ToolMethod]:
    """Return the tools of a class in definition order, bases first.

    Raises `DeclarationError`, which names the class, the method and what to write.
    """
    found: dict[str, ToolMethod] = {}
    for attribute, function in _marked(cls):
        method = _checked(cls.__name__, attribute, function)
        other = found.setdefault(method.name, method)
        if other is not method:
            raise DeclarationError(
                f"{cls.__name__}.{other.attribute} and {cls.__name__}.{attribute} are both the "
                f'tool {method.name!r}; write @tool(name="…") for one of them'
            )
    return list(found.values())


def _marked(cls: type) -> Iterator[tuple[str, Any]]:
    names = dict.fromkeys(
        name
        for base in reversed(cls.__mro__)
        for name, value in vars(base).items()
        if hasattr(value, _MARK)
    )
    for name in names:
        function = getattr(cls, name, None)
        if hasattr(function, _MARK):
            yield name, function
        elif callable(function):
            raise DeclarationError(
                f"{cls.__name__}.{name} replaces a tool; mark it with @tool too, or write "
                f"`{name} = None` to offer it no longer"
            )


@lru_cache(maxsize=256)
def _checked(cls: str, name: str, function: Any) -> ToolMethod:
    """Return the `ToolMethod` of a function. Cached: attrs creates classes with slots twice."""
    where = f"{cls}.{name}"
    try:
        given = list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError as exc:
        raise DeclarationError(
            f"{where}: an annotation cannot be read: {exc}; import or define the type above the "
            "class, outside of `if TYPE_CHECKING`"
        ) from None
    if not given:
        raise DeclarationError(f"{where} takes no `self`: write `async def {name}(self, …)`")
    arguments: list[inspect.Parameter] = []
    contexts: list[str] = []
    for parameter in given[1:]:
        annotation = parameter.annotation
        if annotation is Context:
            contexts.append(parameter.name)
        else:
            _check_argument(where, parameter)
            known = Any if annotation is parameter.empty else annotation
            arguments.append(parameter.replace(annotation=known))
    mark = getattr(function, _MARK)
    return ToolMethod(name, mark, tuple(arguments), tuple(contexts), location_of(function))


def _check_argument(where: str, parameter: inspect.Parameter) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise DeclarationError(
            f"{where}: the agent passes arguments by name, so a tool cannot take `{parameter}`; "
            "write one parameter for each argument"
        )
    if parameter.name.startswith("_"):
        raise DeclarationError(
            f"{where}: the argument {parameter.name!r} begins with an underscore, which MCP "
            f"arguments do not; rename it to {parameter.name.lstrip('_') or 'value'!r}"
        )
