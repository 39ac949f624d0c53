"""Translate the pinned JSON Schemas into Python types.

In: the `$defs` of one protocol version, the newest state and the earlier one. Out: `Class`, `Union`
and `Alias` objects in the order of the schema, which `generate` prints. Rules:

- An object is a class. The members of a tagged union and of its variant are merged into one class
  per variant. Each tagged union gets an `Other…` class for unknown tags, even if the schema's list
  is closed: a proxy must forward unknown variants.
- A definition that is the variant of one tag value is that variant's class. The variant of several
  values (`ContentChunk`) gets a subclass for each.
- A union of scalars is an alias; an enumeration is `Literal[...] | str`: unknown values are kept
  without conversion, `match` works on the literals, and reading or writing one costs nothing. (An
  `Enum` would cost a lookup per value and would not log and compare as a plain string.)
- A member where absent and null differ (`PATCH`) gets `ABSENT` as its default.
- Definitions only in the earlier state are generated too, marked `EARLIER`. Params that changed
  incompatibly get a second class, with `Earlier` at the end of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import attrs

from conductor.schema._definitions import (
    Schema,
    doc_of,
    enum_doc,
    is_union,
    ref_of,
    tag_of,
    tag_value,
    variant_uses,
)
from conductor.schema._items import Alias, Class, Field, Item, Type, Union, pascal

_PATCH_CLASS = re.compile(r"patch\s+semantics|[Oo]mitted fields leave|partial updates", re.DOTALL)
_PATCH_FIELD = re.compile(
    r"[Oo]mitted leaves|[Oo]mitted means unchanged|Omission (leaves|means no\s+change)"
    r"|Set to null to clear|Explicit null is retained"
)
_NOT_PATCH = re.compile(r"null`?\s+(are equivalent|both mean|mean)")

# Names of variants that the schema does not name: (union, tag value or title) -> class name.
_VARIANT_NAMES = {
    ("CreateElicitationResponse", "cancel"): "ElicitationCancelAction",
    ("CreateElicitationResponse", "decline"): "ElicitationDeclineAction",
    ("MessageMcpResponse", "Error"): "MessageMcpErrorResponse",
    ("MessageMcpResponse", "Result"): "MessageMcpResultResponse",
    ("RequestPermissionOutcome", "cancelled"): "CancelledPermissionOutcome",
    ("SetSessionConfigOptionRequest", "boolean"): "SetSessionConfigBooleanRequest",
    ("SetSessionConfigOptionRequest", "id"): "SetSessionConfigValueRequest",
    ("SetSessionConfigOptionRequest", "value_id"): "SetSessionConfigValueRequest",
}
_SECRET = {
    ("AuthMethodTerminal", "env"),
    ("EnvVariable", "value"),
    ("HttpHeader", "value"),
    ("SetProviderRequest", "headers"),
}


def _made_optional(field: Field) -> Field:
    null = "null" in field.type.spec  # v1 allows a request the id null
    default = "ABSENT" if null else "None"
    return attrs.evolve(field, required=False, nullable=True, patch=null, default=default)


def _in_order(fields: Iterable[Field]) -> list[Field]:
    """Sort fields: required ones first, as attrs demands, and `_meta` last."""
    return sorted(fields, key=lambda field: (not field.required, field.wire == "_meta"))


class Reader:
    """Translates definitions to `items`, in the order of the schema."""

    def __init__(self, defs: dict[str, Schema]) -> None:
        self._defs = defs
        self._uses = variant_uses(defs)
        self._types = {name: self._type_of_definition(name) for name in defs}
        self.items: dict[str, Item] = {}
        for name, schema in defs.items():
            self._read(name, schema)

    def _read(self, name: str, schema: Schema) -> None:
        if name in self.items:
            return
        if is_union(schema):
            self._read_union(name, schema)
        elif schema.get("type") == "object":
            doc = doc_of(schema)
            cls = Class(name, doc, self._fields(schema, name))
            if len(self._uses.get(name, ())) == 1:
                tag, value = self._uses[name][0].tag, self._uses[name][0].value
                cls.tags = {tag: value}
                cls.written = (tag, value) if self._only_variant(name) else None
            self._add(cls)
        else:
            self._add(Alias(name, enum_doc(schema), self._definition(name, schema)))

    def _read_union(self, name: str, schema: Schema) -> None:
        union = Union(name, doc_of(schema), tag_of(schema))
        for variant in schema.get("oneOf") or schema["anyOf"]:
            ref, value = ref_of(variant), tag_value(variant)
            if variant.get("title") in ("other", "unknown"):
                union.other = f"Other{name}"
                self._add(self._variant_class(union.other, name, schema, variant))
            elif value is None:
                union.untagged.append(self._variant(name, schema, variant, ref))
            else:
                union.variants[value] = self._variant(name, schema, variant, ref)
        if union.tag is not None and union.other is None:
            union.other = f"Other{name}"
            tag_only = {"properties": {union.tag: {"type": "string"}}, "required": [union.tag]}
            self._add(self._variant_class(union.other, name, schema, tag_only))
        self._add(union)

    def _variant(self, union: str, schema: Schema, variant: Schema, ref: str | None) -> str:
        """The name of a variant's class (or union), created unless its definition suffices."""
        value = tag_value(variant)
        has_own = bool(schema.get("properties")) or len(variant.get("properties", {})) > (
            value is not None
        )
        shared = ref is not None and len(self._uses.get(ref, ())) > 1
        if ref is not None and not has_own and not shared:
            return ref
        if ref is not None and not shared:
            name = ref
        elif union == "SessionUpdate" and value is not None:
            name = pascal(value)
        elif union == "DiffChange" and value is not None:
            name = f"Diff{pascal(value)}"
        else:
            name = _VARIANT_NAMES[union, value or variant["title"]]
        if shared and not has_own and ref is not None:
            cls = Class(name, doc_of(variant), base=ref)
        else:
            cls = self._variant_class(name, union, schema, variant)
        tag = tag_of(schema)
        if tag is not None and value is not None:
            cls.tags = {tag: value}
            cls.written = (tag, value)
        self._add(cls)
        return name

    def _variant_class(self, name: str, union: str, schema: Schema, variant: Schema) -> Class:
        """A class with the members of the union and of this variant."""
        parts = [schema, variant]
        if (ref := ref_of({"allOf": variant.get("allOf", [])})) is not None:
            parts.append(self._defs[ref])
        tag = tag_of(schema)
        own_tag = name == f"Other{union}"
        fields = {
            field.name: field
            for part in parts
            for field in self._fields(part, name)
            if own_tag or field.wire != tag
        }
        doc = doc_of(variant) or doc_of(parts[-1])
        if own_tag and not variant.get("description"):
            doc = f"A variant of `{union}` that this schema does not know."
        return Class(name, doc, _in_order(fields.values()))

    def _add(self, item: Item) -> None:
        known = self.items.get(item.name)
        if known is not None and known != item:
            raise ValueError(f"two types are called {item.name}: name one in _VARIANT_NAMES")
        self.items[item.name] = item

    def _only_variant(self, name: str) -> bool:
        return all(use.only for use in self._uses[name])

    def _fields(self, schema: Schema, owner: str) -> list[Field]:
        required = set(schema.get("required", ()))
        patch_class = bool(_PATCH_CLASS.search(schema.get("description", "")))
        fields = [
            self._field(wire, member, owner, required=wire in required, patch_class=patch_class)
            for wire, member in schema.get("properties", {}).items()
        ]
        if "properties" in schema:
            # `anyOf` or `oneOf` beside `properties` adds the members of one definition: a scope
            # (`ElicitationFormMode`), or members that depend on another (`IdleStateUpdate`).
            for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
                ref = ref_of({"allOf": choice.get("allOf", [])})
                if ref is not None and not is_union(schema):
                    fields += [_made_optional(f) for f in self._fields(self._defs[ref], owner)]
        unique = {field.name: field for field in reversed(fields)}
        return _in_order(reversed(unique.values()))

    def _field(
        self, wire: str, member: Schema, owner: str, *, required: bool, patch_class: bool
    ) -> Field:
        text = member.get("description", "")
        kind = member.get("type")
        any_of = member.get("anyOf", [])
        nullable = (
            (isinstance(kind, list) and "null" in kind)
            or {"type": "null"} in any_of
            or (ref_of(member) == "RequestId" and "null" in self._types["RequestId"].spec)
        )
        untyped = self.type_of(member).spec == "any"
        patch = (
            not required
            and (nullable or untyped)
            and bool(_PATCH_FIELD.search(text) or (patch_class and not _NOT_PATCH.search(text)))
        )
        field = Field(
            wire,
            self.type_of(member),
            doc_of(member, wire=wire, patch=patch),
            required,
            nullable=nullable,
            lenient=bool(member.get("x-deserialize-default-on-error")),
            skip_invalid=bool(member.get("x-deserialize-skip-invalid-items")),
            default_on_null=bool(member.get("x-deserialize-default-on-null")),
            patch=patch,
            secret=(owner, wire) in _SECRET,
        )
        field.default = "ABSENT" if patch else self._default(field, member)
        return field

    def _default(self, field: Field, member: Schema) -> str:
        if field.nullable or field.type.spec == "any":
            return "None"
        if field.type.spec.startswith(("[", "{")):
            return field.type.spec[0] + {"[": "]", "{": "}"}[field.type.spec[0]]
        default = member.get("default")
        if isinstance(default, bool):
            return repr(default)
        if isinstance(default, str):
            return f'"{default}"'
        if isinstance(default, dict):
            return "new"
        return "None"

    def type_of(self, schema: Schema) -> Type:
        """The type of a member or item, without null."""
        if (ref := ref_of(schema)) is not None:
            return self._types[ref]
        any_of = [s for s in schema.get("anyOf", ()) if s != {"type": "null"}]
        if len(any_of) == 1:
            return self.type_of(any_of[0])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next(k for k in kind if k != "null")
        match kind:
            case "array":
                item = self.type_of(schema["items"])
                return Type(f"list[{item.python}]", f"[{item.spec}]")
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                value = self.type_of(schema["additionalProperties"])
                return Type(f"dict[str, {value.python}]", f"{{{value.spec}}}")
            case _:
                return _SCALARS[kind]

    def _definition(self, name: str, schema: Schema) -> str:
        """The right-hand side of an alias."""
        if self._types[name].python != name:
            return self._types[name].python
        if self._types[name].spec == "any":
            return "Any"
        choices = schema.get("oneOf") or schema.get("anyOf") or [schema]
        values = [
            f'"{choice["const"]}"'
            for choice in choices
            if choice.get("type") == "string" and "const" in choice
        ]
        if values:
            return f"Literal[{', '.join(values)}] | str"
        if len(choices) == 1 and choices[0] is not schema:
            return self._types[name].spec
        parts = dict.fromkeys(self.type_of(choice).python for choice in choices)
        return " | ".join(sorted(parts, key="None".__eq__))

    def _type_of_definition(self, name: str) -> Type:
        schema = self._defs[name]
        if is_union(schema) or schema.get("type") == "object":
            return Type(name, name)
        if (ref := ref_of(schema)) is not None:
            return Type(ref, ref)
        choices = schema.get("oneOf") or schema.get("anyOf")
        if choices is None:
            return attrs.evolve(_SCALARS[schema.get("type")], python=name)
        if any("type" not in choice for choice in choices if "allOf" not in choice) or any(
            "allOf" in choice for choice in choices
        ):
            if len(choices) == 1 and (ref := ref_of({"allOf": choices[0]["allOf"]})) is not None:
                return Type(name, ref)
            return Type(name, "any")
        if all("$ref" in choice.get("items", {}) for choice in choices):
            refs = [ref_of(choice["items"]) for choice in choices]
            return Type(name, f"[{'/'.join(str(ref) for ref in refs)}]")
        specs = list(dict.fromkeys(self.type_of(choice).spec for choice in choices))
        return Type(name, "|".join(specs))


_SCALARS: dict[Any, Type] = {
    None: Type("Any", "any"),
    "null": Type("None", "null"),
    "string": Type("str", "str"),
    "integer": Type("int", "int"),
    "number": Type("float", "float"),
    "boolean": Type("bool", "bool"),
    "object": Type("dict[str, Any]", "dict"),
}
