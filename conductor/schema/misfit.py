"""The part of a message that the schema does not allow.

Typed objects hide invalid values where the schema says so (`x-deserialize-default-on-error`,
`x-deserialize-skip-invalid-items`). Here they are found: a handler may have failed because of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from conductor.schema._hooks import ConverterHooks
from conductor.schema.convert import decode

__all__ = ["misfit"]

_LENIENT: Final = str.maketrans("", "", "es")
"""Removes the flags of a field that hide invalid values."""


class _StrictHooks(ConverterHooks):
    """Readers to which each invalid value is an error."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.objects = {
            cls: (
                written,
                tags,
                tuple(
                    (name, wire, spec, flags.translate(_LENIENT), default)
                    for name, wire, spec, flags, default in fields
                ),
            )
            for cls, (written, tags, fields) in self.objects.items()
        }


def misfit(raw: bytes, type_name: str, version: int) -> str | None:
    """The first part of raw JSON that does not fit a type of the schema: `sessions: expected array,
    got a string`. `None` if it fits."""
    try:
        _hooks(version).read(type_name)(decode(raw))
    except ValueError as exc:
        return str(exc)
    return None


@lru_cache
def _hooks(version: int) -> _StrictHooks:
    return _StrictHooks(f"v{version}")
