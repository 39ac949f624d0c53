"""Return annotations of handlers, checked when the class is created.

Only what can never be right is an error: extension methods, `Any`, unknown types and annotations
that only type checkers can read pass.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Final

from conductor.proxy.annotations import DeclarationError, members, readable_annotation, version_of
from conductor.schema import METHODS_BY_VERSION
from conductor.schema.base import Object
from conductor.schema.needed_result import needed_result

__all__ = ["check_answer_return", "check_no_return", "check_return", "check_text_return"]

_NEVER_AN_OBJECT: Final = (str, int, float, list, tuple, set)
_NEVER_A_TEXT: Final = (int, float, list, tuple, set, bytes, Mapping, Object)
_A_VALUE: Final = (str, *_NEVER_A_TEXT)


def check_return(where: str, function: Any, method: str, version: int | None) -> None:
    """Raise `DeclarationError` if the return annotation of an `@on` handler cannot be the result of
    `method`.

    A schema type must be the result type of the method, in `version` of the protocol if that is not
    `None`. A notification has no result. `None` is none where the result has required members.
    """
    known = {
        each: methods[method] for each, methods in METHODS_BY_VERSION.items() if method in methods
    }
    returned = _returned(where, function)
    if not known or not returned:
        return
    results = set(_results_of(method))
    wrong = [
        each
        for each in returned
        if issubclass(each, (Object, *_NEVER_AN_OBJECT)) and each not in results
    ]
    names = sorted({each.result for each in known.values() if each.result is not None})
    if returned == [NoneType] and names:
        versions = [version] if version in known else list(known)
        wrong = returned if all(needed_result(method, each) for each in versions) else []
    if wrong:
        wanted = " or ".join([*names, "dict"]) if names else "None"
        raise DeclarationError(
            f"{where} handles {method!r} and is annotated to return {_shown(wrong[0])}; "
            f"write `-> {wanted}`"
        )
    others = {version_of(each) for each in returned if issubclass(each, Object)}
    if version is not None and others and version not in others:
        raise DeclarationError(
            f"{where} takes a message of protocol version {version} and is annotated to return a "
            f"result of version {others.pop()}; write `-> {known[version].result}`, of "
            f"conductor.schema.v{version}"
        )


def check_answer_return(what: str, function: Any) -> None:
    """Raise `DeclarationError` if the handler of an event cannot return the answer to a request."""
    _check(what, function, (*_NEVER_AN_OBJECT, NoneType), "dict[str, Any]", "an answer")


def check_text_return(what: str, function: Any) -> None:
    """Raise `DeclarationError` if the handler of an event cannot return a text."""
    _check(what, function, _NEVER_A_TEXT, "str | None", "a text or None")


def check_no_return(what: str, function: Any) -> None:
    """Raise `DeclarationError` if the handler of an event is annotated to return something, which
    would be ignored."""
    _check(what, function, _A_VALUE, "None", "nothing")


def _check(what: str, function: Any, wrong: tuple[type, ...], wanted: str, described: str) -> None:
    returned = _returned(what, function)
    if NoneType in wrong and len(returned) > 1:
        returned = [each for each in returned if each is not NoneType]
    for each in returned:
        if issubclass(each, wrong):
            raise DeclarationError(
                f"{what} returns {described} and is annotated to return {_shown(each)}; "
                f"write `-> {wanted}`"
            )


def _returned(where: str, function: Any) -> list[type]:
    """The classes in the return annotation."""
    if "return" not in function.__annotations__:
        return []
    found = members(readable_annotation(where, function, "return"))
    classes = [typing.get_origin(each) or each for each in found]
    return [each for each in classes if isinstance(each, type)]


def _results_of(method: str) -> Iterator[Any]:
    """Yield the result types of a method in the protocol versions that are imported."""
    for version, methods in METHODS_BY_VERSION.items():
        known = methods.get(method)
        loaded = sys.modules.get(f"conductor.schema.v{version}")
        if known is not None and known.result is not None and loaded is not None:
            yield from members(getattr(loaded, known.result))


def _shown(cls: type) -> str:
    return "None" if cls is NoneType else cls.__name__
