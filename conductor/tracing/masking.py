"""Mask secrets in the payloads of a trace. Pure, except for the registered secrets."""

from __future__ import annotations

from conductor.redaction import redact

__all__ = ["mask"]


def mask(method: str, payload: bytes) -> bytes:
    """The raw JSON of a message's payload, with secrets replaced by `***`."""
    text = payload.decode(errors="surrogateescape")
    return redact(text).encode(errors="surrogateescape")
