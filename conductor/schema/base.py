"""Base classes of the generated types, `ABSENT`, and what a class declares about its members.

A field is one declaration: its name is that of the member in snake_case, its annotation the type
that the schema allows, with `Lenient`, `SkipInvalid` or `NullIsDefault` where the schema wants
leniency. `convert` derives reading and writing from it. A tag, the member that selects a variant of
a union, is a `ClassVar` with its value.

A decoded object keeps the JSON object that it was read from. Encoding starts from that JSON and
changes only the members of modified fields. Preserved are unknown members, the order of members,
explicit nulls, and invalid values that the lenient typed view hides.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import attrs
import msgspec

__all__ = ["ABSENT", "Absent", "Extensible", "ExtensiblePatch", "Method", "Object", "Params"]

T = TypeVar("T")
R = TypeVar("R")


class Method(msgspec.Struct, frozen=True):
    """One method of the protocol; the types are names in `conductor.schema.v1` or `.v2`."""

    name: str
    kind: Literal["request", "notification", "both"]
    source: Literal["client", "agent", "both", "proxy"]
    """The sender: "client" (toward the agent), "agent" (toward the client), or "proxy" (between a
    conductor and a proxy)."""
    params: str
    """The type of the params; those of the request if a notification has the same name."""
    result: str | None = None
    notification: str | None = None
    """The type of the notification's params, if a request has the same name."""
    unstable: bool = False
    earlier: bool = False
    """Only in the schema state of August 2026."""


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


class Leniency(enum.Enum):
    """What is read in place of a value that the schema does not allow."""

    INVALID_IS_DEFAULT = "x-deserialize-default-on-error"
    SKIP_INVALID = "x-deserialize-skip-invalid-items"
    NULL_IS_DEFAULT = "x-deserialize-default-on-null"


Lenient: TypeAlias = Annotated[T, Leniency.INVALID_IS_DEFAULT]
"""An invalid value is read as the default."""

SkipInvalid: TypeAlias = Annotated[T, Leniency.SKIP_INVALID]
"""A list without its invalid items."""

NullIsDefault: TypeAlias = Annotated[T, Leniency.NULL_IS_DEFAULT]
"""Null is read as the default."""


@attrs.define(eq=False, repr=False)
class Object:
    """A JSON object with a type. Compares by type, fields and unknown members."""

    _union_tag: ClassVar[str] = ""
    """The tag that is written only in a union, as the class is used elsewhere, too."""

    _source: dict[str, Any] | None = attrs.field(default=None, kw_only=True, alias="_source")
    _extra: dict[str, Any] | None = attrs.field(default=None, kw_only=True, alias="extra")

    @property
    def extra(self) -> dict[str, Any]:
        """The members that the schema does not know; edits are written back."""
        if self._extra is None:
            cls: Any = type(self)
            source = self._source or {}
            self._extra = {k: v for k, v in source.items() if k not in known_members(cls)}
        return self._extra

    @extra.setter
    def extra(self, members: dict[str, Any]) -> None:
        self._extra = members

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.extra == other.extra and all(
            getattr(self, f.name) == getattr(other, f.name) for f in public_fields(type(self))
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # these are edited

    def __repr__(self) -> str:
        shown = []
        for f in public_fields(type(self)):
            value = getattr(self, f.name)
            if f.default is attrs.NOTHING or not (
                value is None or value is False or value is ABSENT
            ):
                # `repr=False` marks secrets: header and environment values.
                shown.append(f"{f.name}={value!r}" if f.repr else f"{f.name}=...")
        if self.extra:
            shown.append(f"extra={self.extra!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@attrs.define(eq=False, repr=False)
class Extensible(Object):
    """An object with `_meta`."""

    meta: Lenient[dict[str, Any] | None] = attrs.field(default=None, kw_only=True)
    """Metadata reserved by ACP for extensions; unknown keys mean nothing."""


@attrs.define(eq=False, repr=False)
class ExtensiblePatch(Object):
    """A patch with `_meta`."""

    meta: Lenient[dict[str, Any] | Absent | None] = attrs.field(default=ABSENT, kw_only=True)
    """Metadata reserved by ACP for extensions: `ABSENT` leaves it, `None` clears it, a dict patches
    it key by key."""


class Params(Object, Generic[R]):
    """The params of a request, of which `R` is the result."""

    __slots__ = ()


@attrs.frozen
class Member:
    """A member of a JSON object, as the field of a class declares it."""

    name: str
    wire: str
    type: Any
    """The type of the values that are neither null nor absent."""
    is_nullable: bool
    is_required: bool
    default: Any
    """The value for an absent or invalid member, or a function that creates one."""
    leniency: frozenset[Leniency]

    def new_default(self) -> Any:
        return self.default() if callable(self.default) else self.default


@functools.cache
def members_of(cls: Any) -> tuple[Member, ...]:
    """The members that a class declares, tags excepted, in the order of its fields."""
    attrs.resolve_types(cls)
    return tuple(map(_member, public_fields(cls)))


def _member(field: attrs.Attribute[Any]) -> Member:
    annotation, leniency = field.type, frozenset[Leniency]()
    if get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        leniency = frozenset(marks)
    is_required = field.default is attrs.NOTHING
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = default.factory
    choices = [each for each in alternatives(annotation) if each not in (NoneType, Absent)]
    type_ = functools.reduce(operator.or_, choices)
    if is_required:  # an invalid value reads as this one, if the schema is lenient
        default = get_origin(type_) if get_origin(type_) in (list, dict) else None
    is_nullable = annotation is not Any and NoneType in alternatives(annotation)
    return Member(
        field.name, wire_name(field.name), type_, is_nullable, is_required, default, leniency
    )


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    is_union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if is_union else (annotation,)


@functools.cache
def tags_of(cls: Any) -> dict[str, str]:
    """The tags of a variant by their wire names, that of the outermost union first."""
    found = inspect.get_annotations(cls)
    return {
        wire_name(name): getattr(cls, name)
        for name, annotation in found.items()
        if annotation.startswith("ClassVar[Literal[")
    }


@functools.cache
def known_members(cls: Any) -> frozenset[str]:
    """The wire names of all members that a class declares."""
    return frozenset((*tags_of(cls), *(member.wire for member in members_of(cls))))


def public_fields(cls: Any) -> list[attrs.Attribute[Any]]:
    """The fields of a class that are members, `_meta` last."""
    fields = [f for f in attrs.fields(cls) if not f.name.startswith("_")]
    return sorted(fields, key=lambda f: f.name == "meta")


def wire_name(name: str) -> str:
    """The name of a member, by the name of its field: `_meta` for `meta`, camelCase for others."""
    first, *words = name.rstrip("_").split("_")
    return "_meta" if name == "meta" else first + "".join(word.capitalize() for word in words)
