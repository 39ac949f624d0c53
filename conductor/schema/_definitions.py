"""Facts of the definitions of a JSON Schema.

In: the raw `$defs`. Out: what a definition refers to, whether it is a union and of which tag, where
it is used as a variant, its documentation, and the definitions of two schema states merged.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

__all__ = [
    "EARLIER",
    "UNSTABLE",
    "Schema",
    "VariantUse",
    "doc_of",
    "enum_doc",
    "is_union",
    "merged",
    "ref_of",
    "tag_of",
    "tag_value",
    "variant_uses",
]

Schema = dict[str, Any]

EARLIER = "EARLIER: only in the schema state of August 2026, which the Rust SDK 2.0 follows."
UNSTABLE = "UNSTABLE: not part of the spec yet; may be removed or changed at any point."

_UNSTABLE_TEXT = re.compile(
    r"\*\*UNSTABLE\*\*\s+This capability is not part of the spec yet,"
    r" and may be removed or changed at any point\."
)


def merged(newest: dict[str, Schema], earlier: dict[str, Schema]) -> dict[str, Schema]:
    """The newest definitions, and those only in the earlier state."""
    defs = {name: dict(schema) for name, schema in newest.items() if "x-docs-ignore" not in schema}
    for name, old in earlier.items():
        if "x-docs-ignore" in old:
            continue
        if name not in newest:
            defs[name] = {**old, "x-earlier": True}
            continue
        gone = {
            wire: {**member, "x-earlier": True}
            for wire, member in old.get("properties", {}).items()
            if wire not in newest[name].get("properties", {})
        }
        if "x-method" in old and gone.keys() & set(old.get("required", ())):
            defs[f"{name}Earlier"] = {**old, "x-earlier": True, "x-method": None}
        elif "properties" in newest[name] and gone:
            defs[name]["properties"] = newest[name]["properties"] | gone
    return defs


def ref_of(schema: Schema) -> str | None:
    """The name of the definition, if the schema is only a reference to it."""
    inner = schema.get("allOf", [schema])
    if len(inner) == 1 and "$ref" in inner[0]:
        return str(inner[0]["$ref"]).rpartition("/")[2]
    return None


def is_union(schema: Schema) -> bool:
    """Whether this definition is a union of classes."""
    choices = schema.get("oneOf") or schema.get("anyOf") or []
    if tag_of(schema) is not None:
        return tag_of(schema) not in schema.get("properties", {})
    return (
        len(choices) > 1
        and (all("allOf" in c for c in choices) or all(c.get("type") == "object" for c in choices))
        and "properties" not in schema
    )


def tag_of(schema: Schema) -> str | None:
    """Return the discriminator of a union of objects: the member with a constant per variant."""
    for variant in schema.get("oneOf") or schema.get("anyOf") or ():
        for wire, member in variant.get("properties", {}).items():
            if "const" in member:
                return str(wire)
    return None


def tag_value(variant: Schema) -> str | None:
    for member in variant.get("properties", {}).values():
        if "const" in member:
            return str(member["const"])
    return None


def doc_of(schema: Schema, *, wire: str = "", patch: bool = False) -> str:
    text = schema.get("description", "")
    if wire == "_meta" and text.startswith("The _meta property is reserved"):
        text = "Metadata reserved by ACP for extensions; unknown keys mean nothing."
        if patch:
            text += " A patch: `ABSENT` leaves it, `None` clears it, a dict patches it key by key."
    text = _UNSTABLE_TEXT.sub(UNSTABLE, text)
    if schema.get("x-earlier"):
        text = f"{EARLIER}\n\n{text}"
    return text.strip()


def enum_doc(schema: Schema) -> str:
    """The description of an alias and of each of its values."""
    lines = [doc_of(schema)]
    values = []
    for choice in schema.get("oneOf") or schema.get("anyOf") or ():
        if "const" in choice:
            meaning = choice.get("description", choice.get("title", ""))
            values.append(f"- `{choice['const']}`: {' '.join(meaning.split())}")
    return "\n\n".join(part for part in (*lines, "\n".join(values)) if part)


@attrs.frozen
class VariantUse:
    """A definition used as the variant of a tagged union."""

    union: str
    tag: str
    value: str
    only: bool  # not used elsewhere


def variant_uses(defs: dict[str, Schema]) -> dict[str, list[VariantUse]]:
    uses: dict[str, list[VariantUse]] = {}
    elsewhere: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                elsewhere.add(node["$ref"].rpartition("/")[2])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    for name, schema in defs.items():
        tag = tag_of(schema) if is_union(schema) else None
        for key, value in schema.items():
            if key not in ("oneOf", "anyOf") or tag is None:
                walk(value)
                continue
            for variant in value:
                tagged, ref = tag_value(variant), ref_of({"allOf": variant.get("allOf", [])})
                if tagged is None or ref is None:
                    walk(variant)
                else:
                    uses.setdefault(ref, []).append(VariantUse(name, tag, tagged, only=True))
    return {
        ref: [attrs.evolve(use, only=ref not in elsewhere) for use in found]
        for ref, found in uses.items()
    }
