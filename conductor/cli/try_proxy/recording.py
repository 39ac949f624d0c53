"""The recorded agent of `try --agent`."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from conductor.testing.recording import Recording

__all__ = ["PlayedRecording", "recorded"]


@attrs.frozen
class PlayedRecording:
    """A recording, and the prompts that play it."""

    file: str
    """Its name in the package, or its path."""
    prompts: Sequence[str]
    """Up to the first turn that the client cancels: `try` cancels none."""


def recorded(file: str) -> PlayedRecording:
    """Read a recording. Raises `ValueError` if it is none, `OSError` if it cannot be read."""
    recording = Recording.load(file)
    prompts = 0
    for message in recording.messages:
        if message.kind == "request" and message.method == "session/prompt":
            prompts += 1
        elif message.sender == "client" and message.method == "session/cancel":
            prompts -= 1
            break
    return PlayedRecording(file, recording.prompts[:prompts])
