"""Convert between JSON and typed objects: `structure`, `unstructure`, `dumps`, and cattrs hooks.

`structure` decodes bytes with msgspec; numbers that a float would spell differently are kept as
`LiteralFloat`. JSON that msgspec refuses or changes (lone surrogates, integers of more than 4,300
digits, `-0`) is decoded by the standard library, which is slower. Of duplicate members only the
last is kept; white space and the choice of escapes in strings are lost. msgspec rather than orjson:
orjson refuses integers over 64 bits and `1e400`.

`structure` takes ownership of a dict: the object refers to it and to its values.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from conductor.json_values import NestedTooDeeply, check_depth
from conductor.schema._hooks import WRITERS, ConverterHooks, hooks_of
from conductor.schema._values import SCALARS, LiteralFloat, Read, SchemaError, literal_float
from conductor.schema.base import Object

if TYPE_CHECKING:
    import cattrs

__all__ = ["SchemaError", "converter", "dumps", "reader", "structure", "unstructure"]

T = TypeVar("T", bound=Object)
Raw = bytes | bytearray | memoryview | msgspec.Raw

_RAW = (bytes, memoryview, msgspec.Raw, bytearray)
_MINUS_ZERO = re.compile(rb"-0(?![.\deE])")
_MANY_DIGITS = 4000  # Python refuses to convert more than 4,300

_decoder = msgspec.json.Decoder(float_hook=literal_float)
_readers: dict[Any, Read] = {}


@overload
def structure(raw: Raw | dict[str, Any], cls: type[T]) -> T: ...
@overload
def structure(raw: Raw | dict[str, Any], cls: Any) -> Any: ...
def structure(raw: Any, cls: Any) -> Any:
    """The typed object for a JSON object; `cls` is a class or a union of `v1` or `v2`."""
    if isinstance(raw, _RAW):
        raw = decode(raw)
    return (_readers.get(cls) or reader(cls))(raw)


def reader(cls: Any) -> Read:
    """The function that makes a typed object of a JSON object, made on the first call: 16 ms."""
    read = _readers.get(cls)
    if read is None:
        read = _readers[cls] = _reader(cls)
    return read


def unstructure(obj: Object | dict[str, Any]) -> dict[str, Any]:
    """The JSON object for a typed object, as a new dict; its values may be shared.

    A dict is returned unchanged. Encode the result with `dumps`: it may contain numbers that a
    plain encoder would spell differently.
    """
    written: dict[str, Any] = WRITERS[type(obj)](obj)
    return written


def dumps(obj: Any) -> bytes:
    """The JSON text of a typed object, or of any JSON value."""
    value = WRITERS[type(obj)](obj) if isinstance(obj, Object) else obj
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _spell(value).encode()


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


def _encode_hook(value: Any) -> Any:
    if type(value) is LiteralFloat:
        return msgspec.Raw(value.text.encode())
    if isinstance(value, Object):  # inside a dict from proxy code
        return unstructure(value)
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)


def _spell(value: Any) -> str:
    """JSON with lone surrogates escaped, as UTF-8 cannot encode them."""
    match value:
        case str():
            return json.dumps(value)
        case dict():
            members = (f"{json.dumps(key)}:{_spell(item)}" for key, item in value.items())
            return f"{{{','.join(members)}}}"
        case list() | tuple():
            return f"[{','.join(map(_spell, value))}]"
        case _:
            return _encoder.encode(value).decode()


def _reader(cls: Any) -> Read:
    if cls is Any or cls is dict:
        return SCALARS["any" if cls is Any else "dict"]
    if isinstance(cls, type) and issubclass(cls, Object):
        return hooks_of(cls).read(cls.__name__)
    if (found := _union(cls)) is not None:
        return found
    raise TypeError(f"{cls!r} is not one of the schema's types")


def _union(cls: Any) -> Read | None:
    for version in ("v1", "v2"):
        types = sys.modules.get(f"conductor.schema.{version}")
        hooks = _hooks_of_module(types) if types is not None else None
        for name in hooks.unions if hooks is not None else ():
            if getattr(types, name) == cls:
                return hooks.read(name) if hooks is not None else None
    return None


def _hooks_of_module(types: Any) -> ConverterHooks:
    return hooks_of(types.TextContent)


@functools.cache
def converter() -> cattrs.Converter:
    """A cattrs converter that knows the schema's types, also inside other attrs classes."""
    import cattrs  # takes 50 ms

    made = cattrs.Converter()
    made.register_structure_hook_func(_is_schema_type, structure)
    made.register_unstructure_hook_func(_is_schema_type, unstructure)
    return made


def _is_schema_type(cls: Any) -> bool:
    if isinstance(cls, type):
        return issubclass(cls, Object)
    return _union(cls) is not None
