"""Base class of the generated ACP types, and `ABSENT`.

A decoded object keeps the JSON object that it was read from. Encoding starts from that JSON and
changes only the members of modified fields. Preserved are unknown members, the order of members,
explicit nulls, and invalid values that the lenient typed view hides.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Final, Literal, TypeAlias

import attrs

__all__ = ["ABSENT", "Absent", "Object"]


class _Absent(enum.Enum):
    ABSENT = "absent"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "ABSENT"


Absent: TypeAlias = Literal[_Absent.ABSENT]
"""The type of `ABSENT`, for annotations."""

ABSENT: Final = _Absent.ABSENT
"""Value of a field that is absent in the JSON object, where absent and null have different
meanings: in a patch, `ABSENT` leaves the stored value and `None` clears it."""


@attrs.define(eq=False, repr=False)
class Object:
    """A JSON object with a type. Compares by type, fields and unknown members."""

    _wire_names: ClassVar[frozenset[str]] = frozenset()

    _source: dict[str, Any] | None = attrs.field(default=None, kw_only=True, alias="_source")
    _extra: dict[str, Any] | None = attrs.field(default=None, kw_only=True, alias="extra")

    @property
    def extra(self) -> dict[str, Any]:
        """The members that the schema does not know; edits are written back."""
        if self._extra is None:
            source = self._source or {}
            self._extra = {k: v for k, v in source.items() if k not in self._wire_names}
        return self._extra

    @extra.setter
    def extra(self, members: dict[str, Any]) -> None:
        self._extra = members

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.extra == other.extra and all(
            getattr(self, f.name) == getattr(other, f.name) for f in _public_fields(type(self))
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # these are edited

    def __repr__(self) -> str:
        shown = []
        for f in _public_fields(type(self)):
            value = getattr(self, f.name)
            if f.default is attrs.NOTHING or not (
                value is None or value is False or value is ABSENT
            ):
                # `repr=False` marks secrets: header and environment values.
                shown.append(f"{f.name}={value!r}" if f.repr else f"{f.name}=...")
        if self.extra:
            shown.append(f"extra={self.extra!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _public_fields(cls: type[Object]) -> list[attrs.Attribute[Any]]:
    return [f for f in attrs.fields(cls) if not f.name.startswith("_")]
