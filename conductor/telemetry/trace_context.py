"""W3C trace context in `_meta` (RFD meta-propagation): read it, and pass it on. Pure.

Each request of a hop has its own span. The conductor writes the span's id into `traceparent`, and
its parent's id into its own member of `tracestate` (`acp-conductor`), as W3C trace context suggests
for the position of a vendor. So a recorded message tells which span it is, and where it belongs.
`baggage` and the members of other vendors stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from conductor.json_values import decode_value
from conductor.jsonrpc.json_object import object_members, with_member

__all__ = [
    "TraceContext",
    "context_of",
    "derived_id",
    "new_span_id",
    "new_trace_id",
    "with_context",
]

VENDOR: Final = "acp-conductor"
NO_PARENT: Final = "0" * 16
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_SPAN_ID: Final = re.compile("[0-9a-f]{16}")
_MAX_MEMBERS: Final = 32
"""Members of `tracestate` (W3C trace context, section 3.3.1.1)."""

Sampler: TypeAlias = Callable[["TraceContext | None", str], bool]
"""Decides whether a request is sampled, by its parent and its trace id."""


@attrs.frozen
class TraceContext:
    """Reference to a span: the content of `traceparent`."""

    trace_id: str
    span_id: str
    sampled: bool = True
    tracestate: str = ""
    """The members of other vendors."""
    parent: str | None = None
    """The parent's span id, if the conductor wrote the context; `NO_PARENT` at the root."""

    @property
    def is_own(self) -> bool:
        """Whether the context is that of the message's own span, written by the conductor."""
        return self.parent is not None

    def child(self, *, sampled: bool) -> TraceContext:
        """The context of a new span below this one."""
        return attrs.evolve(self, span_id=new_span_id(), sampled=sampled, parent=self.span_id)


def new_trace_id() -> str:
    return secrets.token_hex(16)


def new_span_id() -> str:
    return secrets.token_hex(8)


def derived_id(size: int, *parts: object) -> str:
    """An id of `size` bytes that is the same each time that it is made of these parts."""
    text = json.dumps(parts)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def context_of(meta: Any) -> TraceContext | None:
    """The trace context in a decoded `_meta`; `None` without a valid one."""
    if not isinstance(meta, dict):
        return None
    traceparent, tracestate = meta.get("traceparent"), meta.get("tracestate")
    found = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or (str(traceparent).startswith("00-") and len(str(traceparent)) != 55):
        return None
    others, parent = [], None
    for member in (tracestate if isinstance(tracestate, str) else "").split(","):
        name, _, value = member.strip().partition("=")
        if name == VENDOR:
            parent = value if _SPAN_ID.fullmatch(value) else None
        elif name:
            others.append(member.strip())
    return TraceContext(found[1], found[2], bool(int(found[3], 16) & 1), ",".join(others), parent)


def with_context(params: bytes, make: Callable[[TraceContext | None], TraceContext]) -> bytes:
    """Raw params with the context that `make` returns for the one that they have.

    Other members keep their bytes. Params that are not an object, or have a `_meta` that is not
    one, are returned unchanged.
    """
    try:
        raw = object_members(params).get("_meta", b"null")
        meta = b"{}" if raw == b"null" else raw
        members = object_members(meta)
    except ValueError:
        return params
    before = context_of({name: _text(members.get(name)) for name in ("traceparent", "tracestate")})
    context = make(before)
    others = context.tracestate.split(",")[: _MAX_MEMBERS - 1] if context.tracestate else []
    state = ",".join([f"{VENDOR}={context.parent or NO_PARENT}", *others])
    flags = "01" if context.sampled else "00"
    traceparent = f"00-{context.trace_id}-{context.span_id}-{flags}"
    meta = with_member(meta, ["traceparent"], msgspec.json.encode(traceparent))
    meta = with_member(meta, ["tracestate"], msgspec.json.encode(state))
    return with_member(params, ["_meta"], meta)


def _text(raw: bytes | None) -> Any:
    try:
        return None if raw is None else decode_value(raw)
    except msgspec.DecodeError:
        return None
