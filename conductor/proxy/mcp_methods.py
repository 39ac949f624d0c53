"""`@tool`, `@resource` and `@prompt`: methods of a proxy that the agent reaches over MCP.

    @tool
    async def search(self, words: str, context: Context) -> list[str]:
        '''Search the notes.'''

    @resource("notes://{name}", mime_type="text/markdown")
    async def note(self, name: str) -> str:
        '''One note.'''

    @prompt
    async def summarize(self, topic: str) -> str:
        '''Summarize the notes about a topic.'''

Names, descriptions and schemas come from the methods: their names, docstrings and annotations.
Parameters annotated `Context` or `ToolCall` are filled here and not part of the schema. Mistakes
are reported when the class is created. The MCP SDK is imported only when an agent connects
(`mcp_method_server`), since the import takes half a second.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, overload

import attrs
import msgspec

from conductor.proxy.annotations import DeclarationError
from conductor.proxy.mcp_context import Context
from conductor.proxy.middleware import location_of
from conductor.proxy.uri_templates import UriTemplateError, template_variables

__all__ = ["McpMethod", "ToolCall", "mcp_methods", "prompt", "resource", "tool"]

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["tool", "resource", "prompt"]
_MARK: Final = "__acp_mcp_method__"
_SDK_CONTEXT: Final = ("mcp.server.mcpserver.context", "Context")


class ToolCall(msgspec.Struct, frozen=True):
    """The caller of a tool. A parameter with this annotation gets it and is hidden from the
    model. `Context` has the same, and more."""

    session_id: str | None
    """The ACP session id; `None` if the agent connected before its session had an id."""
    server_id: str
    connection_id: str | None
    """`None` in the stateless binding."""


@attrs.frozen
class _MethodMark:
    """Arguments of a method's decorator."""

    kind: Kind
    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Any = None
    """Only for tools."""
    uri: str = ""
    """Only for resources; may be a template."""
    mime_type: str | None = None
    """Only for resources."""


@attrs.frozen(eq=False)
class McpMethod:
    """A method with one of the decorators, checked."""

    attribute: str
    """The name of the method."""
    mark: _MethodMark
    arguments: tuple[inspect.Parameter, ...]
    """The parameters that the agent fills; annotations are evaluated."""
    injected: Mapping[str, type[Context] | type[ToolCall]]
    """The parameters that are filled here, by name."""
    sdk_context: str | None
    """The parameter that gets the `Context` of the MCP SDK."""
    variables: tuple[str, ...]
    """The variables in the URI of a resource."""
    location: str
    """`file:line` of the method."""

    @property
    def name(self) -> str:
        """Its name for the agent."""
        return self.mark.name or self.attribute

    @property
    def key(self) -> str:
        """Key that is unique among the methods of its kind."""
        return self.mark.uri or self.name


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
    mark = _marker(_MethodMark("tool", name, title, description, annotations))
    return mark if function is None else mark(function)


def resource(
    uri: str,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
) -> Callable[[F], F]:
    """Mark an async method as an MCP resource, which the agent can read.

    `uri` is the address, such as `"notes://index"`, or a template (RFC 6570), such as
    `"notes://{name}"`, in which each variable is a parameter of the method. The method returns text
    (`mime_type` is by default `text/plain`), bytes, or a value that is sent as JSON. A
    `RequestError` is the answer to the agent.
    """
    if not isinstance(uri, str):
        raise DeclarationError(
            'write @resource("<uri>"), for example @resource("notes://{name}") above '
            "`async def note(self, name: str) -> str`"
        )
    return _marker(
        _MethodMark("resource", name, title, description, uri=uri, mime_type=mime_type),
    )


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(
    *, name: str | None = None, title: str | None = None, description: str | None = None
) -> Callable[[F], F]: ...
def prompt(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
) -> Any:
    """Mark an async method as an MCP prompt, which many agents offer as a slash command.

    Its parameters are the arguments of the prompt, which are texts. The method returns the text for
    the model, or a list of messages: texts, `{"role": "assistant", "content": "…"}`, or messages of
    the MCP SDK. A `RequestError` is the answer to the agent.
    """
    mark = _marker(_MethodMark("prompt", name, title, description))
    return mark if function is None else mark(function)


def _marker(mark: _MethodMark) -> Callable[[F], F]:
    def decorate(marked: F) -> F:
        if not inspect.iscoroutinefunction(marked):
            shown = getattr(marked, "__qualname__", repr(marked))
            raise DeclarationError(
                f"@{mark.kind}: {shown} must be `async def`"
                + ("" if inspect.isfunction(marked) else f", not a {type(marked).__name__}")
            )
        setattr(marked, _MARK, mark)
        return marked

    return decorate


def mcp_methods(cls: type) -> list[McpMethod]:
    """Return the MCP methods of a class in definition order, bases first.

    Raises `DeclarationError`, which names the class, the method and what to write.
    """
    found: list[McpMethod] = []
    taken: dict[tuple[Kind, str], str] = {}
    for name, function in _marked(cls):
        method = _checked(cls.__name__, name, function)
        kind, key = method.mark.kind, method.key
        other = taken.setdefault((kind, key), name)
        if other != name:
            raise DeclarationError(
                f"{cls.__name__}.{other} and {cls.__name__}.{name} are both the {kind} {key!r}; "
                + (
                    "give one another URI"
                    if kind == "resource"
                    else f'write @{kind}(name="…") for one of them'
                )
            )
        found.append(method)
    return found


def _marked(cls: type) -> Iterator[tuple[str, Any]]:
    names = {
        name: getattr(value, _MARK)
        for base in reversed(cls.__mro__)
        for name, value in vars(base).items()
        if hasattr(value, _MARK)
    }
    for name, mark in names.items():
        function = getattr(cls, name, None)
        if hasattr(function, _MARK):
            yield name, function
        elif callable(function):
            raise DeclarationError(
                f"{cls.__name__}.{name} replaces a {mark.kind}; mark it with @{mark.kind} too, or "
                f"write `{name} = None` to offer it no longer"
            )


@lru_cache(maxsize=256)
def _checked(cls: str, name: str, function: Any) -> McpMethod:
    """Return the `McpMethod` of a function. Cached: attrs creates every class with slots twice."""
    mark: _MethodMark = getattr(function, _MARK)
    where = f"{cls}.{name}"
    given = _parameters(where, function)
    if not given:
        raise DeclarationError(f"{where} takes no `self`: write `async def {name}(self, …)`")
    arguments: list[inspect.Parameter] = []
    injected: dict[str, type[Context] | type[ToolCall]] = {}
    sdk_context = None
    for parameter in given[1:]:
        annotation = parameter.annotation
        if annotation is Context or annotation is ToolCall:
            injected[parameter.name] = annotation
        elif _is_sdk_context(annotation):
            sdk_context = parameter.name
        else:
            _check_argument(where, mark.kind, parameter)
            known = Any if annotation is parameter.empty else annotation
            arguments.append(parameter.replace(annotation=known))
    variables = _check_uri(where, name, mark, arguments) if mark.kind == "resource" else ()
    return McpMethod(
        name, mark, tuple(arguments), injected, sdk_context, variables, location_of(function)
    )


def _parameters(where: str, function: Any) -> list[inspect.Parameter]:
    """Return the parameters with evaluated annotations."""
    try:
        return list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError as exc:
        raise DeclarationError(
            f"{where}: an annotation cannot be read: {exc}; import or define the type above the "
            "class, outside of `if TYPE_CHECKING`"
        ) from None


def _is_sdk_context(annotation: Any) -> bool:
    bases = annotation.__mro__ if isinstance(annotation, type) else ()
    return any((base.__module__, base.__name__) == _SDK_CONTEXT for base in bases)


def _check_argument(where: str, kind: Kind, parameter: inspect.Parameter) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise DeclarationError(
            f"{where}: the agent passes arguments by name, so a {kind} cannot take "
            f"`{parameter}`; write one parameter for each argument"
        )
    if parameter.name.startswith("_"):
        raise DeclarationError(
            f"{where}: the argument {parameter.name!r} begins with an underscore, which MCP "
            f"arguments do not; rename it to {parameter.name.lstrip('_') or 'value'!r}"
        )


def _check_uri(
    where: str, name: str, mark: _MethodMark, arguments: Sequence[inspect.Parameter]
) -> tuple[str, ...]:
    """Return the variables of a resource's URI, which are the parameters of the method."""
    uri = mark.uri
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
        raise DeclarationError(
            f"{where}: the resource {uri!r} is not a URI: begin with a scheme, such as "
            f'@resource("{name}://{uri.lstrip("/")}")'
        )
    try:
        variables = template_variables(uri)
    except UriTemplateError as exc:
        raise DeclarationError(
            f"{where}: the resource {uri!r} is not a URI template: {exc}; write a variable as "
            f"`{{name}}`"
        ) from None
    given = [parameter.name for parameter in arguments]
    if set(given) != set(variables):
        shown = ", ".join(["self", *(f"{each}: str" for each in variables)])
        told = ", ".join(variables) or "no variables"
        raise DeclarationError(
            f"{where}: the resource {uri!r} has {told}, the method takes "
            f"({', '.join(given)}); write `async def {name}({shown})`"
        )
    for parameter in arguments:
        if variables[parameter.name] and parameter.default is parameter.empty:
            raise DeclarationError(
                f"{where}: {parameter.name!r} is in the query of {uri!r}, which the agent may "
                f'leave out; give it a default: `{parameter.name}: str = ""`'
            )
    return tuple(variables)
