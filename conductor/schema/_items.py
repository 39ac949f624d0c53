"""Intermediate representation of types, between the JSON Schema and the generated Python."""

from __future__ import annotations

import keyword
import re
from typing import TypeAlias

import attrs


@attrs.frozen
class Type:
    """The type of a value, as a Python annotation and as a converter spec (see `_hooks`)."""

    python: str
    spec: str


@attrs.define
class Field:
    wire: str
    type: Type
    doc: str
    required: bool
    nullable: bool = False
    lenient: bool = False
    skip_invalid: bool = False
    default_on_null: bool = False
    patch: bool = False
    default: str = "None"  # None False True [] {} new ABSENT or a quoted string
    secret: bool = False

    @property
    def name(self) -> str:
        if self.wire == "_meta":
            return "meta"
        name = snake(self.wire)
        return name + "_" if keyword.iskeyword(name) else name

    @property
    def flags(self) -> str:
        """The flags of the wire table; see `_hooks`."""
        letters = {
            "r": self.required,
            "n": self.nullable,
            "e": self.lenient,
            "s": self.skip_invalid,
            "0": self.default_on_null,
        }
        return "".join(letter for letter, on in letters.items() if on)


@attrs.define
class Class:
    name: str
    doc: str
    fields: list[Field] = attrs.field(factory=list)
    base: str = "Object"
    tags: dict[str, str] = attrs.field(factory=dict)  # tag member -> value of this class
    written: tuple[str, str] | None = None  # the tag that it always writes, with its value


@attrs.define
class Union:
    name: str
    doc: str
    tag: str | None
    variants: dict[str, str] = attrs.field(factory=dict)  # tag value -> class or union
    other: str | None = None
    untagged: list[str] = attrs.field(factory=list)

    @property
    def members(self) -> list[str]:
        names = [*self.variants.values(), *self.untagged, *([self.other] if self.other else [])]
        return list(dict.fromkeys(names))


@attrs.define
class Alias:
    name: str
    doc: str
    definition: str


Item: TypeAlias = Class | Union | Alias


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def pascal(value: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_\-]", value))
