"""Type of a handler's message parameter, from its annotation, checked against the method.

A schema type must be the params of the handled method in version 1 or 2 of the protocol; `dict`,
`Any` and no annotation give plain JSON objects; `bytes` gives raw JSON. An observer of all messages
gets `RawMessage`. Also checked: the order of the parameters, and the types in `Forward[…]`.
"""

from __future__ import annotations

import importlib
import sys
import types
import typing
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

from conductor.proxy.forward import Forward
from conductor.proxy.raw_message import RawMessage
from conductor.schema import METHODS_BY_VERSION
from conductor.schema.base import Object

__all__ = [
    "DeclarationError",
    "check_forward",
    "check_order",
    "members",
    "message_type",
    "method_of",
    "readable_annotation",
    "result_type",
    "version_of",
]

_MODULES: Final = {1: "conductor.schema.v1", 2: "conductor.schema.v2"}
_PLAIN: Final = (dict, Any, Mapping, MutableMapping)


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
    if any(annotation == fitting for fitting in _params_types(method)):
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


def check_order(where: str, name: str, function: Any, first: str, second: str | None) -> None:
    """Raise `DeclarationError` if `forward` stands before the message.

    `name` is the name of the handler, `first` and `second` are its parameters after `self`.
    """
    swapped = first == "forward" or (
        first in function.__annotations__
        and _is_forward(readable_annotation(where, function, first))
    )
    if second is not None and second in function.__annotations__ and not swapped:
        swapped = method_of(readable_annotation(where, function, second)) is not None
    if swapped:
        raise DeclarationError(
            f"{where}: the message comes first, then `forward`: "
            f"async def {name}(self, message, forward)"
        )


def check_forward(where: str, function: Any, second: str, method: str, message: Any) -> None:
    """Raise `DeclarationError` if `Forward[…]` names other types than the handler's.

    `second` is the name of the parameter, `message` the type of the handled message.
    """
    if second not in function.__annotations__:
        return
    annotation = readable_annotation(where, function, second)
    if typing.get_origin(annotation) is not Forward:
        return
    sent, received = typing.get_args(annotation)
    result = result_type(method, message) if _has_result(method) else None
    if not (_objects(sent) <= _objects(message) and _objects(received) <= _objects(result)):
        raise DeclarationError(
            f"{where} handles {method!r} and gets {_shown(message)}; annotate {second!r} as "
            f"Forward[{_shown(message)}, {_shown(result)}]"
        )


def _has_result(method: str) -> bool:
    """Whether a method is a request, as far as the schema knows it."""
    known = [versions[method] for versions in METHODS_BY_VERSION.values() if method in versions]
    return not known or any(each.result is not None for each in known)


def _is_forward(annotation: Any) -> bool:
    return (typing.get_origin(annotation) or annotation) is Forward


def _objects(annotation: Any) -> set[type[Object]]:
    """Return the schema types in a type or union."""
    return {
        each for each in members(annotation) if isinstance(each, type) and issubclass(each, Object)
    }


def _shown(annotation: Any) -> str:
    """Return the text of a type for an error message."""
    if annotation is dict:
        return "dict[str, Any]"
    names = [getattr(each, "__name__", repr(each)) for each in members(annotation)]
    return "None" if annotation is None else " | ".join(names)


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def readable_annotation(where: str, function: Any, name: str) -> Any:
    """Return an annotation, or `Any` if it names types that only type checkers see."""
    try:
        return _annotation(where, function, name)
    except DeclarationError:
        return Any


def result_type(method: str, annotation: Any) -> Any:
    """Return the result type of `method`: a schema type, `dict` or `bytes`, as `annotation` is."""
    if annotation is bytes or annotation is RawMessage:
        return bytes
    for version, module in _MODULES.items():
        known = METHODS_BY_VERSION[version].get(method)
        if known is not None and known.result is not None and _is_from(annotation, module):
            return getattr(importlib.import_module(module), known.result)
    return dict


def version_of(annotation: Any) -> int | None:
    """Return the version of the protocol that a schema type belongs to; `None` for other types."""
    for version, module in _MODULES.items():
        if _is_from(annotation, module):
            return version
    return None


def method_of(message: Any) -> str | None:
    """Return the method that has this params type, as a request or a notification."""
    for version, module in _MODULES.items():
        for method in METHODS_BY_VERSION[version]:
            for candidate in _params_types_in(method, version, module):
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


def _params_types(method: str) -> Iterator[Any]:
    """Yield the params types of a method in the protocol versions that are imported."""
    for version, module in _MODULES.items():
        yield from _params_types_in(method, version, module)


def _params_types_in(method: str, version: int, module: str) -> Iterator[Any]:
    known = METHODS_BY_VERSION[version].get(method)
    loaded = sys.modules.get(module)  # a type that is used as an annotation has its module imported
    if known is not None and loaded is not None:
        for name in (known.params, known.notification):
            if name is not None:
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
