"""Valid JSON instances made from the pinned JSON Schemas.

Knows the vocabulary that these schemas use, no more. (hypothesis-jsonschema resolves `$ref` into
copies and does not finish on schemas of this size.)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from jsonschema.protocols import Validator

import conductor.schema

DATA = Path(conductor.schema.__file__).parent / "data"
CASES = [(state, version) for state in ("newest", "2026-08") for version in (1, 2)]

_NAMES = st.text("abcXYZ_é☃", min_size=1, max_size=6)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2),
    max_leaves=4,
)


@functools.cache
def definitions(state: str, version: int) -> dict[str, Any]:
    return dict(json.loads((DATA / state / f"v{version}.json").read_text("utf-8"))["$defs"])


@functools.cache
def validator(state: str, version: int, name: str) -> Validator:
    schema = {"$ref": f"#/$defs/{name}", "$defs": definitions(state, version)}
    return jsonschema.Draft202012Validator(schema)


def check_each(
    chosen: settings, check: Callable[..., None], *strategies: st.SearchStrategy[Any]
) -> None:
    """Call `check` with values of these strategies, one argument each."""

    @seed(0)  # one of its own would be made of its source, too
    @chosen
    @given(st.tuples(*strategies))  # of a short function: its source is tokenized in each test
    def run(values: tuple[Any, ...]) -> None:
        check(*values)

    run()


@functools.cache
def valid(state: str, version: int, name: str) -> st.SearchStrategy[Any]:
    """Valid instances of one definition, with unknown members here and there."""
    made = _strategies(state, version).of({"$ref": f"#/$defs/{name}"})
    return made.filter(validator(state, version, name).is_valid)


def variants(version: int, name: str) -> list[str]:
    """The values that select the variants of a definition of the newest schema: its kinds."""
    schema = definitions("newest", version)[name]
    choices = [each.get("properties", {}) for each in schema.get("oneOf") or schema["anyOf"]]
    return [member["const"] for each in choices for member in each.values() if "const" in member]


@functools.cache
def valid_variant(
    version: int, name: str, kind: str, *, closed: bool = False
) -> st.SearchStrategy[Any]:
    """Valid instances of one variant of a definition of the newest schema.

    `closed`: without values and types that the schema leaves to extensions and later versions.
    """
    schema = definitions("newest", version)[name]
    branch = next(
        each
        for each in schema.get("oneOf") or schema["anyOf"]
        if any(member.get("const") == kind for member in each.get("properties", {}).values())
    )
    others = {key: schema[key] for key in ("properties", "required") if key in schema}
    made = _strategies("newest", version, closed=closed)
    whole = st.tuples(made.of({"type": "object", **others}), made.of(branch)).map(_merged)
    return whole.filter(validator("newest", version, name).is_valid)


class _Strategies:
    def __init__(self, defs: dict[str, Any], *, closed: bool = False) -> None:
        self._defs = defs
        self._closed = closed
        self._of_ref: dict[str, st.SearchStrategy[Any]] = {}

    def of(self, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name not in self._of_ref:
                self._of_ref[name] = st.deferred(lambda: self.of(self._defs[name]))
                self._of_ref[name] = self.of(self._defs[name])
            return self._of_ref[name]
        if "const" in schema:
            return st.just(schema["const"])
        choices = schema.get("oneOf") or schema.get("anyOf") or []
        if self._closed:
            choices = [each for each in choices if each.get("title") not in ("other", "unknown")]
        if schema.get("type") == "object" or any("properties" in c for c in choices):
            return self._object(schema, choices)
        if choices:
            return st.one_of([self.of(choice) for choice in choices])
        if "allOf" in schema:
            return self.of(schema["allOf"][0])
        kinds = schema.get("type")
        if kinds is None:
            return json_values
        if isinstance(kinds, str):
            kinds = [kinds]
        return st.one_of([self._kind(kind, schema) for kind in kinds])

    def _kind(self, kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        low, high = schema.get("minimum"), schema.get("maximum")
        match kind:
            case "null":
                return st.none()
            case "string":
                return st.text(min_size=schema.get("minLength", 0), max_size=6)
            case "boolean":
                return st.booleans()
            case "integer":
                return st.integers(-(2**63) if low is None else low, high or 2**63 - 1)
            case "number":
                return st.floats(low, high, allow_nan=False, allow_infinity=False)
            case "array":
                items = self.of(schema["items"])
                return st.lists(items, min_size=schema.get("minItems", 0), max_size=2)
            case _:
                return self._object(schema, [])

    def _object(
        self, schema: dict[str, Any], choices: list[dict[str, Any]]
    ) -> st.SearchStrategy[dict[str, Any]]:
        required = schema.get("required", ())
        members = {k: self.of(v) for k, v in schema.get("properties", {}).items()}
        fixed = {k: v for k, v in members.items() if k in required}
        optional = {k: v for k, v in members.items() if k not in required}
        base = st.fixed_dictionaries(fixed, optional=optional)
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            extra = st.dictionaries(_NAMES, self.of(others), max_size=2)
        else:
            extra = st.dictionaries(_NAMES, json_values, max_size=1)
        parts = [extra, base, *(self.of(part) for part in schema.get("allOf", ()))]
        if choices:
            parts.append(st.one_of([self.of(choice) for choice in choices]))
        return st.tuples(*parts).map(_merged)


@functools.cache
def _strategies(state: str, version: int, *, closed: bool = False) -> _Strategies:
    """Those of one schema share what its definitions refer to."""
    return _Strategies(definitions(state, version), closed=closed)


def _merged(parts: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {k: v for part in parts for k, v in part.items()}
