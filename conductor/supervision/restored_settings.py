"""Updates with the real mode and options of a session, where settings are not restored. Pure.

The client shows what was set before the restart of the agent; where the agent refuses to set it
again, it has its own default, or another value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from conductor.jsonrpc.json_object import decoded_members
from conductor.routing.session_settings import KINDS, SET_MODE, set_value
from conductor.setting_forms import state_after

__all__ = ["real_state_updates"]


def real_state_updates(
    session: str,
    refused: Sequence[str],
    result: bytes,
    accepted: Sequence[tuple[str, bytes, bytes]],
) -> Iterator[bytes]:
    """Raw params of `session/update` for the client; none if nothing was refused.

    `refused` are the methods of the refused settings, `result` is that of the resumption of the
    session, `accepted` are the settings that the agent has accepted, in order: method, params and
    result. All raw.
    """
    if not refused:
        return
    state = {name: each for name, each in decoded_members(result).items() if each}
    for method, params, answer in accepted:
        value = set_value(method, params)
        state = state_after(state, KINDS[method], value, decoded_members(answer))
    updates: list[dict[str, Any]] = []
    modes, options = state.get("modes"), state.get("configOptions")
    if SET_MODE in refused and isinstance(modes, dict) and "currentModeId" in modes:
        mode = modes["currentModeId"]
        updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
    if isinstance(options, list):
        updates.append({"sessionUpdate": "config_option_update", "configOptions": options})
    for update in updates:
        yield msgspec.json.encode({"sessionId": session, "update": update})
