"""`@on`: which messages a plugin handles; mistakes in it are found when its module is imported."""

from __future__ import annotations

import difflib
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import attrs

from conductor.schema import METHODS

__all__ = ["DeclarationError", "Handler", "collect", "on"]

Sender = Literal["client", "agent"]
F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__acp_handles__"


class DeclarationError(TypeError):
    """A plugin class is written wrongly; the text names the class, the method, and the remedy."""


@attrs.frozen
class Handler:
    """One handler of a plugin class."""

    method: str
    function: Callable[..., Any]
    senders: tuple[Sender, ...]
    """From whom it takes the message: the client (travelling toward the agent), the agent."""
    annotation: Any
    """The type that the message is given as: a schema type, `dict`, or `bytes` (raw JSON)."""
    takes_forward: bool

    def result_type(self) -> Any:
        """The type of the answer that `forward` returns: as typed as the request is."""
        known = METHODS.get(self.method)
        if known is None or known.result is None or not attrs.has(self.annotation):
            return self.annotation if self.annotation is bytes else dict
        return getattr(importlib.import_module(self.annotation.__module__), known.result, dict)

    @property
    def place(self) -> str:
        code = self.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


def on(method: str, *, source: Sender | None = None) -> Callable[[F], F]:
    """Mark an async method as the handler of a wire method.

    Who sends the message is known from the schema; for extension methods say `source="client"` or
    `source="agent"`, or leave it out to handle both. `"*"` gets every message that passes, raw.
    """
    if not isinstance(method, str):
        raise DeclarationError('write @on("<wire method>"), for example @on("session/prompt")')

    def mark(function: F) -> F:
        marks = list(getattr(function, _MARK, ()))
        setattr(function, _MARK, [*marks, (method, source)])
        return function

    return mark


def collect(cls: type) -> tuple[Handler, ...]:
    """The handlers of a plugin class, its bases' included. Raises `DeclarationError`."""
    found: dict[tuple[str, Sender], Handler] = {}
    for name in dir(cls):
        function = inspect.getattr_static(cls, name)
        for method, source in getattr(function, _MARK, ()):
            handler = _handler(cls, name, function, method, source)
            for sender in handler.senders:
                other = found.get((method, sender))
                if other is not None:
                    raise DeclarationError(
                        f"{cls.__name__}: both {other.function.__name__} ({other.place}) and "
                        f"{name} ({handler.place}) handle {method!r}; merge them into one"
                    )
                found[method, sender] = handler
    return tuple(dict.fromkeys(found.values()))


def _handler(cls: type, name: str, function: Any, method: str, source: Sender | None) -> Handler:
    where = f"{cls.__name__}.{name}"
    if not inspect.iscoroutinefunction(function):
        raise DeclarationError(f"{where} handles {method!r} and must be `async def`")
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if len(parameters) not in (1, 2):
        raise DeclarationError(
            f"{where} must take the message and, if it passes it on, `forward`: "
            f"async def {name}(self, message, forward)"
        )
    return Handler(
        method,
        function,
        _senders(where, method, source),
        _annotation(where, function, parameters[0].name, method),
        takes_forward=len(parameters) == 2,
    )


def _senders(where: str, method: str, source: Sender | None) -> tuple[Sender, ...]:
    if source is not None:
        return (source,)
    known = METHODS.get(method)
    if known is not None:
        return _SENDERS[known.source]
    if method == "*" or method.startswith(("_", "$/")):
        return ("client", "agent")
    near = difflib.get_close_matches(method, METHODS, n=1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    raise DeclarationError(
        f"{where} handles {method!r}, which is no ACP method{hint} "
        f"(extension methods begin with an underscore, or name their source=)"
    )


_SENDERS: Final[Mapping[str, tuple[Sender, ...]]] = {
    "client": ("client",),
    "agent": ("agent",),
    "both": ("client", "agent"),
    "proxy": ("client", "agent"),
}


def _annotation(where: str, function: Any, parameter: str, method: str) -> Any:
    try:
        hints = typing.get_type_hints(function)
    except NameError as exc:
        raise DeclarationError(
            f"{where}: the annotation of {parameter!r} cannot be read: {exc}; import the type "
            f"outside of `if TYPE_CHECKING`"
        ) from None
    annotation = hints.get(parameter, dict)
    origin = typing.get_origin(annotation) or annotation
    if origin in (dict, bytes, Any, Mapping) or attrs.has(origin):
        return dict if annotation is Any else annotation
    raise DeclarationError(
        f"{where}: {parameter!r} is annotated {annotation!r}; use the message's schema type, "
        f"`dict` for plain params, or `bytes` for raw JSON"
    )
