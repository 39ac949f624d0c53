"""The annotations of handlers: the type in which a handler gets its message.

A schema type must be the params of the handled method in version 1 or 2 of the protocol; `dict`,
`Any` and no annotation give plain JSON objects; `bytes` gives raw JSON. An observer of all messages
gets `RawMessage`. What stands in `Forward[…]` and in the return annotation is for type checkers,
which know the types of each method (`method_types`).
"""

from __future__ import annotations

import importlib
import sys
import typing
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from conductor.schema import METHODS, METHODS_BY_VERSION
from conductor.schema.base import Object

if TYPE_CHECKING:  # a default, so that `Forward` alone is `Forward[Any, Any]`
    from typing_extensions import TypeVar

    Message = TypeVar("Message", contravariant=True, default=Any)
    Result = TypeVar("Result", covariant=True, default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message", contravariant=True)
    Result = TypeVar("Result", covariant=True)

__all__ = [
    "DeclarationError",
    "Forward",
    "RawMessage",
    "message_type",
    "method_of",
    "result_type",
    "version_of",
]

_MODULES: Final = {1: "conductor.schema.v1", 2: "conductor.schema.v2"}
_COMMON: Final = "conductor.schema.common"
_PLAIN: Final = (dict, Any, Mapping, MutableMapping)


class Forward(Protocol[Message, Result]):
    """Sends the handled message on.

        @on("session/prompt")
        async def handle(
            self, request: PromptRequest, forward: Forward[PromptRequest, PromptResponse]
        ) -> PromptResponse: ...

    `await forward()` sends the message with the changes that the handler has made to it, byte for
    byte as it arrived if there are none; `await forward(other)` sends another one. For a request it
    returns the result, or raises `RequestError`; for a notification (`Forward[…, None]`) it returns
    once the notification is queued. `Forward` alone takes and returns anything.
    """

    async def __call__(self, message: Message | None = None, /) -> Result: ...


class RawMessage(msgspec.Struct, frozen=True):
    """A message as it arrived at the plugin, before its handlers run."""

    kind: Literal["request", "notification", "response"]
    method: str
    """For a response, the method of its request."""
    source: Literal["client", "agent"]
    """The sending side: a message from "client" travels toward the agent."""
    payload: bytes | None
    """Raw JSON of the params, result or error; `None` if there are no params."""
    is_error: bool = False
    """Whether it is a response with an error object as payload."""
    number: int = 0
    """Correlates a request with its response: equal for these two, unique otherwise; 0 for a
    notification.

    A request that a handler of the same plugin forwards keeps its number. The response to a request
    that the plugin itself sent has a new number."""


class DeclarationError(TypeError):
    """A plugin class is declared wrongly; the message names the class, the method and the fix."""


def message_type(where: str, function: Any, parameter: str, method: str) -> Any:
    """Return the type in which a handler of `method` gets its message: `dict`, `bytes`, a schema
    type, or `RawMessage` for an observer (`method` is "*").

    `where` names the handler in errors. Raises `DeclarationError` if the annotation does not fit.
    """
    annotation = _annotation(where, function, parameter)
    plain = (typing.get_origin(annotation) or annotation) in _PLAIN
    if method == "*":
        if plain or annotation is RawMessage:
            return RawMessage
        raise DeclarationError(
            f"{where} observes every message: annotate {parameter!r} as RawMessage"
        )
    if plain:
        return dict
    if annotation is bytes:
        return bytes
    if any(annotation == fitting for fitting in _types(method)):
        return annotation
    shown = getattr(annotation, "__name__", repr(annotation))
    wanted = f"use {_names(method)}`dict` (plain params) or `bytes` (raw JSON)"
    other = method_of(annotation)
    if other is not None:
        raise DeclarationError(
            f"{where} handles {method!r}, but {parameter!r} is annotated {shown}, which is the "
            f"type of {other!r}; {wanted}"
        )
    raise DeclarationError(f"{where}: {parameter!r} is annotated {shown}; {wanted}")


def result_type(method: str, annotation: Any) -> Any:
    """Return the result type of `method`: a schema type, `dict` or `bytes`, as `annotation` is."""
    if annotation is bytes or annotation is RawMessage:
        return bytes
    for version, module in (*_MODULES.items(), (None, _COMMON)):
        known = (METHODS if version is None else METHODS_BY_VERSION[version]).get(method)
        if known is not None and known.result is not None and _is_from(annotation, module):
            return getattr(importlib.import_module(module), known.result)
    return dict


def version_of(annotation: Any) -> int | None:
    """Return the version of the protocol that a schema type belongs to; `None` for other types, and
    for those that are the same in all versions."""
    for version, module in _MODULES.items():
        if _is_from(annotation, module):
            return version
    return None


def method_of(message: Any) -> str | None:
    """Return the method that has this params type, as a request or a notification."""
    for method in dict.fromkeys(name for each in METHODS_BY_VERSION.values() for name in each):
        for candidate in _types(method):
            if candidate == message or message in typing.get_args(candidate):
                return method
    return None


def _annotation(where: str, function: Any, parameter: str) -> Any:
    if parameter not in function.__annotations__:
        return dict
    try:
        return typing.get_type_hints(function)[parameter]
    except NameError:
        pass
    # An annotation of another parameter, or of the return type, may name a type that is only
    # imported for type checkers: evaluate this one alone.
    try:
        alone = {parameter: function.__annotations__[parameter]}
        holder = typing.cast(Any, type("Holder", (), {"__annotations__": alone}))
        return typing.get_type_hints(holder, globalns=function.__globals__)[parameter]
    except NameError as exc:
        raise DeclarationError(
            f"{where}: the annotation of {parameter!r} cannot be read: {exc}; import the type "
            f"outside of `if TYPE_CHECKING`"
        ) from None


def _types(method: str) -> Iterator[Any]:
    """Yield the params types of a method in the protocol versions that are imported: a type that is
    used as an annotation has its module imported."""
    for version, module in _MODULES.items():
        known, loaded = METHODS_BY_VERSION[version].get(method), sys.modules.get(module)
        if known is not None and loaded is not None:
            for name in filter(None, (known.params, known.notification)):
                yield getattr(loaded, name)


def _is_from(annotation: Any, module: str) -> bool:
    return any(
        isinstance(member, type) and issubclass(member, Object) and member.__module__ == module
        for member in typing.get_args(annotation) or (annotation,)
    )


def _names(method: str) -> str:
    """Return the names of the params types of a method, for error messages."""
    known = [versions[method] for versions in METHODS_BY_VERSION.values() if method in versions]
    names = [name for each in known for name in (each.params, each.notification) if name]
    return "".join(f"{name} or " for name in dict.fromkeys(names))
