"""JSON text and its Python values, without loss: numbers keep their spelling.

`decode` uses msgspec; numbers that a float would spell differently are kept as `LiteralFloat`. JSON
that msgspec refuses or changes (lone surrogates, integers of more than 4,300 digits, `-0`) is
decoded by the standard library, which is slower. Of duplicate members only the last is kept; white
space and the choice of escapes in strings are lost. msgspec rather than orjson: orjson refuses
integers over 64 bits and `1e400`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from conductor.errors import ConductorError
from conductor.json_values import NestedTooDeeply, check_depth

Raw: TypeAlias = bytes | bytearray | memoryview | msgspec.Raw

_MINUS_ZERO = re.compile(rb"-0(?![.\deE])")
_MANY_DIGITS = 4000  # Python refuses to convert more than 4,300


class SchemaError(ConductorError, ValueError):
    """A value has a type that the schema does not allow; `path` is its location.

    The text does not contain the value: it may be a secret.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str | int] = []

    def under(self, step: str | int) -> SchemaError:
        self.path.insert(0, step)
        return self

    def __str__(self) -> str:
        steps = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.path)
        return f"{steps.removeprefix('.')}: {self.problem}" if steps else self.problem


class LiteralFloat(float):
    """A number with its original spelling: `1e400`, `1.10`, `-0`."""

    __slots__ = ("text",)
    text: str

    def __reduce__(self) -> tuple[Any, ...]:
        return (literal_float, (self.text,))


def literal_float(text: str) -> float:
    value = float(text)
    if "e" not in text and repr(value) == text:  # msgspec spells exponents differently
        return value
    kept = LiteralFloat(value)
    kept.text = text
    return kept


_decoder = msgspec.json.Decoder(float_hook=literal_float)


def decode(raw: Raw) -> Any:
    """The Python value of a JSON text; numbers keep their spelling."""
    data = bytes(raw) if isinstance(raw, msgspec.Raw) else raw
    try:
        value = _decoder.decode(data)
        check_depth(data, value)
    except NestedTooDeeply as error:
        raise SchemaError(str(error)) from None
    except RecursionError:
        raise SchemaError(str(NestedTooDeeply())) from None
    except msgspec.DecodeError:
        return _decode_slowly(bytes(data))
    except UnicodeDecodeError as error:
        raise SchemaError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if b"-0" in bytes(data) and _MINUS_ZERO.search(data):
        return _decode_slowly(bytes(data))
    return value


def _decode_slowly(data: bytes) -> Any:
    try:
        value = json.loads(
            data.decode(),
            parse_float=literal_float,
            parse_int=_literal_int,
            parse_constant=_no_constant,
        )
        check_depth(data, value)
        return value
    except (NestedTooDeeply, RecursionError):
        raise SchemaError(str(NestedTooDeeply())) from None
    except json.JSONDecodeError as error:
        raise SchemaError(f"not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def _literal_int(text: str) -> int | float:
    if text == "-0" or len(text) > _MANY_DIGITS:
        return literal_float(text)
    return int(text)


def _no_constant(name: str) -> Any:
    raise SchemaError(f"not JSON: {name}")


def escaped(value: Any, encode: Callable[[Any], bytes]) -> str:
    """JSON with lone surrogates escaped, as UTF-8 cannot encode them."""
    match value:
        case str():
            return json.dumps(value)
        case dict():
            members = (f"{json.dumps(key)}:{escaped(item, encode)}" for key, item in value.items())
            return f"{{{','.join(members)}}}"
        case list() | tuple():
            return f"[{','.join(escaped(item, encode) for item in value)}]"
        case _:
            return encode(value).decode()
