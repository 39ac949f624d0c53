"""Terminals of an agent of version 2, as text for a client of version 1. Pure.

A terminal of version 1 belongs to the client, which cannot show one of the agent.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import attrs

from conductor.bounded_dict import BoundedDict
from proxies.shared.client_texts import console_text, exit_text
from proxies.v1_v2.members import Json, key_of

__all__ = ["Terminals"]

_MAX_SHOWN: Final = 16 * 1024
"""Bytes at the end of a terminal's output that are kept and shown."""
_MAX_ENDING: Final = 100
"""Characters of how it ended."""
_STEP: Final = 1024
"""Bytes of new output after which the text is sent again."""
_MAX_TERMINALS: Final = 100
"""Terminals of a session that are remembered; the oldest are forgotten."""


@attrs.define
class _V2Terminal:
    command: str = ""
    output: bytes = b""
    is_cut: bool = False
    ending: str = ""
    unshown: int = _STEP
    """Bytes since the text was last sent; at first as many as are needed to send it."""

    def append(self, data: bytes) -> None:
        self.unshown += len(data)
        self.output += data
        if len(self.output) > _MAX_SHOWN:
            self.is_cut = True
            self.output = self.output[-_MAX_SHOWN:]


@attrs.define
class Terminals:
    """The terminals of one session."""

    _by_id: BoundedDict[str, _V2Terminal] = attrs.field(
        factory=lambda: BoundedDict(_MAX_TERMINALS), init=False
    )

    def update(self, update: Json) -> bool:
        """Take a `terminal_update`; returns whether the text should be sent now."""
        terminal = self._terminal(update)
        if "command" in update:
            terminal.command = _text(update["command"])[:_MAX_SHOWN]
        if "output" in update:
            terminal.output, terminal.is_cut = b"", False
            output = update["output"]
            terminal.append(_bytes(output.get("data") if isinstance(output, dict) else None))
        status = update.get("exitStatus")
        if isinstance(status, dict):
            terminal.ending = exit_text(status.get("exitCode"), status.get("signal"))[:_MAX_ENDING]
        terminal.unshown = 0
        return True

    def chunk(self, update: Json) -> bool:
        """Take a `terminal_output_chunk`; returns whether the text should be sent now."""
        terminal = self._terminal(update)
        terminal.append(_bytes(update.get("data")))
        if terminal.unshown < _STEP:
            return False
        terminal.unshown = 0
        return True

    def text(self, id: str) -> str:
        """The output as Markdown."""
        terminal = self._by_id.get(key_of(id))
        if terminal is None:
            return "[a terminal of the agent]"
        output = terminal.output.decode(errors="replace")
        return console_text(terminal.command, output, terminal.ending, is_cut=terminal.is_cut)

    def _terminal(self, update: Json) -> _V2Terminal:
        id = key_of(str(update.get("terminalId")))
        return self._by_id.setdefault(id, _V2Terminal())


def _bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
