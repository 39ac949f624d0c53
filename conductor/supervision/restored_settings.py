"""Updates with the real mode and options of a session, where settings are not restored. Pure.

The client shows what was set before the restart of the agent; where the agent refuses to set it
again, it has its own default, or another value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.routing.session_settings import SET_MODE

__all__ = ["real_state_updates"]


def real_state_updates(
    session: str, refused: Sequence[str], results: Sequence[bytes]
) -> Iterator[bytes]:
    """Raw params of `session/update` for the client; none if nothing was refused.

    `refused` are the methods of the refused settings, `results` the raw results of the agent to the
    resumption of the session and to the settings, in order: the last one that tells a value counts.
    """
    found: dict[str, Any] = {}
    for result in results:
        try:
            decoded = msgspec.json.decode(result)
        except DECODE_ERRORS:
            continue
        if isinstance(decoded, dict):
            found |= {name: each for name, each in decoded.items() if each}
    updates: list[dict[str, Any]] = []
    modes = found.get("modes")
    if SET_MODE in refused and isinstance(modes, dict) and "currentModeId" in modes:
        mode = modes["currentModeId"]
        updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
    if refused and isinstance(options := found.get("configOptions"), list):
        updates.append({"sessionUpdate": "config_option_update", "configOptions": options})
    for update in updates:
        yield msgspec.json.encode({"sessionId": session, "update": update})
