"""JSON as text: splitting it without changing bytes, and generating unusual valid JSON.

Nothing of `conductor` is used here, so that the tests do not check the code with itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

_scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode


def cut(line: bytes) -> dict[str, bytes]:
    """The members of an object, each with the bytes that it is written with; of equals the last."""
    text = line.decode("utf-8", "surrogatepass")
    members: dict[str, bytes] = {}
    index = _skip(text, 0) + 1
    while (index := _skip(text, index)) < len(text) and text[index] != "}":
        if text[index] == ",":
            index = _skip(text, index + 1)
        name, index = _scan(text, index)
        index = _skip(text, _skip(text, index) + 1)
        _, end = _scan(text, index)
        members[name] = text[index:end].encode("utf-8", "surrogatepass")
        index = end
    return members


def _skip(text: str, index: int) -> int:
    while index < len(text) and text[index] in " \t\r\n":
        index += 1
    return index


TOO_DEEP = 1_000_000
"""JSON nested too deeply to be read."""


def nested(depth: int) -> bytes:
    """`depth` nested arrays."""
    return b"[" * depth + b"]" * depth


def deepest(read: Callable[[bytes], object] = json.loads) -> int:
    """The nesting depth that can be read from this call. Up to Python 3.11 that is 1,000 less the
    calls on the stack; 3.12 counts for C alone, up to 1,500, and 3.13 up to 10,000;
    since 3.14 it is as much as the stack has room for."""
    low, high = 1, TOO_DEEP
    while low < high:
        middle = (low + high + 1) // 2
        try:
            read(nested(middle))
        except RecursionError:
            high = middle - 1
        else:
            low = middle
    return low


def compact(value: Any) -> str:
    """JSON as real peers write it, like `JSON.stringify`: without spaces, and with no other
    characters escaped than must be."""
    return dumps(value).decode()


def dumps(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")  # lone surrogates become their escapes


# -- any JSON value in any valid notation -------------------------------------------------------

_space = st.sampled_from(["", "", "", " ", "\t", "\r", "  "])
_plain = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\')
_escape = st.sampled_from(
    [r"\n", r"\/", r"\"", r"\\", r"\u0000", r"\u00e9", r"\ud83d\ude00", r"\uD83D", r"\udead", r"\b"]
)
strings = st.lists(_plain | _escape, max_size=6).map(lambda parts: '"' + "".join(parts) + '"')
numbers = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "1.0",
        "-1.50",
        "1e400",
        "-1E-400",
        "1E+2",
        "9" * 30,
        "9007199254740993",
        "0.1",
    ]
) | st.integers().map(str)
_scalars = strings | numbers | st.sampled_from(["true", "false", "null"])


@st.composite
def _array(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(inner, max_size=4))
    return "[" + ",".join(_padded(draw, item) for item in items) + draw(_space) + "]"


@st.composite
def _object(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    names = strings | st.sampled_from(['"a"', '"id"', '"method"', '"_meta"', '"sessionId"'])
    members = draw(st.lists(st.tuples(names, inner), max_size=4))
    return (
        "{"
        + ",".join(f"{_padded(draw, name)}:{_padded(draw, value)}" for name, value in members)
        + draw(_space)
        + "}"
    )


def _padded(draw: st.DrawFn, text: str) -> str:
    return draw(_space) + text + draw(_space)


values = st.recursive(_scalars, lambda inner: _array(inner) | _object(inner), max_leaves=8)
objects = _object(values)
arrays = _array(values)
