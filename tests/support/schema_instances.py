"""The official schemas as the tests read them: instances with every member and every variant, and
the Python object that is expected for a JSON value.

Reads the pinned JSON Schemas without the generator and the tables of `conductor.schema`, so that a
mistake in these is a difference here.
"""

from __future__ import annotations

import functools
import itertools
import keyword
import re
from collections.abc import Iterator
from typing import Any

import attrs

from conductor.schema.base import ABSENT, Object
from support.schema_strategies import definitions

Node = dict[str, Any]
ANY = "any"
FREE: Node = {}


@attrs.frozen
class Shape:
    """One of the forms that a schema allows: an object of one variant, a list, a scalar, null."""

    kind: str  # a type of JSON, "map" or "any"
    node: Node = attrs.field(factory=dict)
    members: dict[str, Node] = attrs.field(factory=dict)
    required: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()  # definitions that it is made of
    other_of: str | None = None  # union of which this is the variant with an unknown tag

    @functools.cached_property
    def constants(self) -> dict[str, Any]:
        return {wire: node["const"] for wire, node in self.members.items() if "const" in node}

    def under(self, name: str) -> Shape:
        return attrs.evolve(self, names=(name, *self.names))

    def with_members_of(self, other: Shape) -> Shape:
        return attrs.evolve(
            other,
            members=self.members | other.members,
            required=self.required | other.required,
            names=self.names + other.names,
            other_of=self.other_of or other.other_of,
        )


@functools.cache
def attribute(wire: str) -> str:
    if wire == "_meta":
        return "meta"
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", wire).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


class Schema:
    """The definitions of one state of the schema of one version."""

    def __init__(self, state: str, version: int) -> None:
        self.definitions = definitions(state, version)
        self._numbers = itertools.count(2)
        self._shapes: dict[str | int, list[Shape]] = {}  # by reference, or id of the node

    # --- what a schema allows ---

    def shapes(self, node: Node) -> list[Shape]:
        """Those with the most definite tag first, for unknown tags last."""
        key = node.get("$ref") or id(node)
        if key not in self._shapes:
            found = self._shapes_of(node)
            found.sort(key=lambda shape: (shape.other_of is not None, not shape.constants))
            self._shapes[key] = found
        return self._shapes[key]

    def _shapes_of(self, node: Node) -> list[Shape]:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            return [shape.under(name) for shape in self.shapes(self.definitions[name])]
        choices = node.get("oneOf") or node.get("anyOf") or []
        if "properties" in node or any("properties" in choice for choice in choices):
            return self._objects(node, choices)
        if choices:
            return [shape for choice in choices for shape in self.shapes(choice)]
        if "allOf" in node:
            return list(self.shapes(node["allOf"][0]))
        kinds = node.get("type", ANY)
        kinds = kinds if isinstance(kinds, list) else [kinds]
        is_map = isinstance(node.get("additionalProperties"), dict)
        return [Shape("map" if kind == "object" and is_map else kind, node) for kind in kinds]

    def _objects(self, node: Node, choices: list[Node]) -> list[Shape]:
        own = Shape("object", node, node.get("properties", {}), frozenset(node.get("required", ())))
        found = [own]
        for part in node.get("allOf", ()):
            found = [one.with_members_of(two) for one in found for two in self.shapes(part)]
        if not choices:
            return found
        of_union = [
            self._marked(shape, choice, own) for choice in choices for shape in self.shapes(choice)
        ]
        tag = self._tag(choices)
        if tag and tag not in own.members and not any(shape.other_of == "" for shape in of_union):
            tag_only = {tag: {"type": "string"}}
            of_union.append(Shape("object", {}, tag_only, frozenset(tag_only), other_of=""))
        return [one.with_members_of(two) for one in found for two in of_union]

    def _marked(self, shape: Shape, choice: Node, own: Shape) -> Shape:
        """With a mark at the variant for unknown tags."""
        is_other = choice.get("title") in ("other", "unknown")
        if is_other and not choice["properties"].keys() & own.members.keys():
            return attrs.evolve(shape, other_of="")
        return shape

    def _tag(self, choices: list[Node]) -> str | None:
        for choice in choices:
            for wire, member in choice.get("properties", {}).items():
                if "const" in member:
                    return str(wire)
        return None

    def shape_of(self, node: Node, value: Any) -> Shape:
        """The shape that a valid value has."""
        for shape in self.shapes(node):
            if self._fits(shape, value):
                return shape
        raise AssertionError(f"the schema does not allow {value!r}: {node}")

    def allows(self, node: Node, value: Any) -> bool:
        return any(self._fits(shape, value) for shape in self.shapes(node))

    def _fits(self, shape: Shape, value: Any) -> bool:
        match shape.kind:
            case "object":
                return (
                    isinstance(value, dict)
                    and shape.required <= value.keys()
                    and shape.constants.items() <= value.items()
                    and all(
                        self.allows(shape.members[wire], value[wire]) for wire in shape.required
                    )
                )
            case "array":
                items = shape.node.get("items", FREE)
                return isinstance(value, list) and all(self.allows(items, item) for item in value)
            case "map":
                values = shape.node["additionalProperties"]
                return isinstance(value, dict) and all(
                    self.allows(values, item) for item in value.values()
                )
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "integer":
                return type(value) is int
            case "number":
                return type(value) in (int, float)
            case "string":
                return isinstance(value, str)
            case _:
                return True

    # --- instances ---

    def minimal(self, shape: Shape) -> Any:
        if shape.kind == "object" and shape.members:
            return {
                wire: self._member(shape, wire, self.minimal)
                for wire in shape.members
                if wire in shape.required
            }
        return [] if shape.kind == "array" else {} if shape.kind == "map" else self.full(shape)

    def full(self, shape: Shape, depth: int = 0) -> Any:
        """With every member, all values distinct and none its default."""
        number = next(self._numbers)
        if "const" in shape.node:
            return shape.node["const"]
        if "enum" in shape.node:
            return shape.node["enum"][0]

        def deeper(shape: Shape) -> Any:
            return self.minimal(shape) if depth > 4 else self.full(shape, depth + 1)

        match shape.kind:
            case "object" if shape.members:
                return {wire: self._member(shape, wire, deeper) for wire in shape.members}
            case "object":
                return {f"key-{number}": {"n": number}}
            case "array":
                return [self.value(shape.node.get("items", FREE), deeper) for _ in range(2)]
            case "map":
                values = shape.node["additionalProperties"]
                return {f"key-{number}": self.value(values, deeper)}
            case "null":
                return None
            case "boolean":
                return not shape.node.get("default", False)
            case "integer":
                return number
            case "number":
                return number + 0.5
            case "string":
                return f"text-{number}"
            case _:
                return {"any": [number, None, 1.5]}

    def value(self, node: Node, make: Any) -> Any:
        """One value, not null if there is another."""
        shapes = [shape for shape in self.shapes(node) if shape.kind != "null"]
        return make(shapes[0]) if shapes else None

    def _member(self, shape: Shape, wire: str, make: Any) -> Any:
        node = shape.members[wire]
        if isinstance(node.get("default"), bool):
            return not node["default"]
        return self.value(node, make)

    def values(self, node: Node) -> Iterator[Any]:
        """Of every shape: each variant, each constant, null; also an unknown constant, no item."""
        shapes = self.shapes(node)
        for shape in shapes:
            yield self.minimal(shape)
            if shape.kind == "array":
                for item in self.values(shape.node.get("items", FREE)):
                    if item is not None:
                        yield [item]
            if shape.kind == "map":
                for item in self.values(shape.node["additionalProperties"]):
                    yield {"key": item}
        if any(isinstance(shape.node.get("const"), str) for shape in shapes):
            yield "_of_tomorrow"

    def instances(self, shape: Shape) -> Iterator[Node]:
        """Minimal, full, with unknown members at both ends, and with each value of each member."""
        yield (smallest := self.minimal(shape))
        yield (whole := self.full(shape))
        yield {"x-before": {"b": None, "a": [1.5]}, **whole, "x-after": None}
        for wire, node in shape.members.items():
            if "const" not in node:
                for value in self.values(node):
                    yield {**smallest, wire: value}

    # --- the expected object ---

    def differences(self, typed: Any, node: Node, value: Any, types: Any) -> Iterator[str]:
        """Where a typed value is not that of a JSON value: its class, its attributes, the types of
        these, the defaults of absent members, the unknown members."""
        shape = self.shape_of(node, value)
        match shape.kind:
            case "object" if shape.names and not self._is_free(node):
                yield from self._of_object(typed, shape, value, types)
            case "array" if type(typed) is list and len(typed) == len(value):
                for i, (one, item) in enumerate(zip(typed, value, strict=True)):
                    for text in self.differences(one, shape.node.get("items", FREE), item, types):
                        yield f"[{i}]{text}"
            case "map" if type(typed) is dict and typed.keys() == value.keys():
                values = shape.node["additionalProperties"]
                for key, item in value.items():
                    for text in self.differences(typed[key], values, item, types):
                        yield f".{key}{text}"
            case _:
                if typed != value or (type(typed) is not type(value) and type(value) is not float):
                    yield f": {typed!r} for {value!r}"

    def _of_object(self, typed: Any, shape: Shape, value: Node, types: Any) -> Iterator[str]:
        if not isinstance(typed, Object):
            yield f": {typed!r} for {value!r}"
            return
        bases = {cls.__name__ for cls in type(typed).__mro__}
        named = {n for n in shape.names if isinstance(getattr(types, n, None), type)}
        if shape.other_of is not None:
            named = {f"Other{name}" for name in shape.names}
        named |= {f"{name}Earlier" for name in named}
        if named and not shape.constants and not named & bases:  # others are known by their tag
            yield f": {type(typed).__name__} for {value!r}"
        members = shape.members
        for wire, member in members.items():
            if not hasattr(typed, attribute(wire)):
                yield f".{wire}: no attribute of {type(typed).__name__}"
                continue
            found = getattr(typed, attribute(wire))
            if wire not in value or self._null_is_default(member, value[wire]):
                texts = self.of_default(found, member, types)
            else:
                texts = self.differences(found, member, value[wire], types)
            for text in texts:
                yield f".{wire}{text}"
        unknown = {wire: item for wire, item in value.items() if wire not in members}
        if typed.extra != unknown:
            yield f": unknown members {typed.extra!r} for {unknown!r}"

    def _is_free(self, node: Node) -> bool:
        return any(shape.kind == ANY for shape in self.shapes(node))

    def _null_is_default(self, member: Node, value: Any) -> bool:
        return value is None and bool(member.get("x-deserialize-default-on-null"))

    def of_default(self, found: Any, member: Node, types: Any) -> Iterator[str]:
        nullable = self.allows(member, None)
        default = None if nullable else member.get("default")
        if isinstance(default, dict) and self.shape_of(member, {}).names:
            yield from self._of_object(found, self.shape_of(member, {}), default, types)
            return
        kinds = {shape.kind for shape in self.shapes(member)}
        if default is None and kinds in ({"array"}, {"map"}):
            default = [] if kinds == {"array"} else {}
        if found != default and not (default is None and found is ABSENT):
            yield f": {found!r} instead of the default {default!r}"
