"""Dispatch by target type: the hook that reads a value as a type.

Rules are pairs of a predicate for types and a function that makes the hook; the first that fits is
taken. `NewType`, `Final` and annotations without a meaning for chain files are looked through.

cattrs also dispatches by type, but it neither collects issues nor reads scalars by type: each hook
would be a function of `converter` in any case, and its import takes 8 ms of a start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, NewType, TypeAlias, get_args, get_origin

import msgspec

from conductor.chainfile.scalars import Unit
from conductor.chainfile.value_errors import UnsupportedType

__all__ = ["Converter", "Hook", "plain_type"]

Hook: TypeAlias = Callable[[Any], Any]
"""Reads a value as a certain type; raises `InvalidValue`."""
_Rule: TypeAlias = tuple[Callable[[Any], bool], Callable[[Any], Hook]]


class Converter(msgspec.Struct, eq=False):
    """Hooks by type: the first rule that fits a type makes its hook when the type is first met."""

    rules: list[_Rule]
    directory: str = ""
    """Base of relative paths."""
    hooks: dict[Any, Hook] = {}

    def structure(self, value: Any, hint: Any) -> Any:
        """`value` as the type `hint`. Raises `InvalidValue` and `UnsupportedType`."""
        hook = self.hooks.get(hint) or self._make(hint)
        return hook(value)

    def _make(self, hint: Any) -> Hook:
        plain = plain_type(hint)
        for fits, hook_of in self.rules:
            if fits(plain):
                hook = self.hooks[hint] = hook_of(plain)
                return hook
        raise UnsupportedType(hint)


def plain_type(hint: Any) -> Any:
    """The type behind names for it, and without annotations that are not a `Unit`."""
    while True:
        if isinstance(hint, NewType):
            hint = hint.__supertype__
        elif get_origin(hint) is Annotated:
            unit = next((each for each in hint.__metadata__ if isinstance(each, Unit)), None)
            if unit is not None:
                return Annotated[hint.__origin__, unit]
            hint = hint.__origin__
        elif get_origin(hint) is Final:
            (hint,) = get_args(hint)
        else:
            return hint
