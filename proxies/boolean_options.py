"""`boolean_options`: shows an agent's boolean options in a client that only knows selections.

An agent offers an option that is on or off only to a client that announces
`session.configOptions.boolean`. This proxy announces it, and shows each such option as a selection
of `on` and `off`. A client that has the capability gets the options as they are.

For protocol version 1; in version 2 every client knows boolean options.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from conductor.proxy import (
    Forward,
    Proxy,
    Session,
    SessionSetup,
    on,
    on_session_setup,
    on_update,
    per_session,
)
from proxies.shared.capabilities import announce

__all__ = ["BooleanOptions"]

_VALUES: Final = {"on": True, "off": False}


@attrs.define
class BooleanOptions(Proxy):
    """Show boolean options as selections of `on` and `off`."""

    versions = (1,)

    _is_needed: bool = attrs.field(default=False, init=False)

    booleans = per_session(set[str])
    """The ids of the options that are boolean for the agent."""

    @on("initialize")
    async def announce(self, request: dict[str, Any], forward: Forward) -> Any:
        self._is_needed = announce(request, {}, "session", "configOptions", "boolean")
        return await forward()

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        result = await forward()
        id = result.get("sessionId", setup.session_id) if isinstance(result, dict) else None
        if isinstance(id, str):
            self._convert(id, result)
        return result

    @on_update("config_option_update")
    async def changed(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        self._convert(session.id, update)
        await forward()

    @on("session/set_config_option")
    async def choose(self, params: dict[str, Any], forward: Forward) -> Any:
        id, value = params["sessionId"], params.get("value")
        is_boolean = params.get("configId") in self.booleans[id]
        if is_boolean and isinstance(value, str) and value in _VALUES:  # the agent refuses others
            params |= {"type": "boolean", "value": _VALUES[value]}
        result = await forward()
        self._convert(id, result)
        return result

    def _convert(self, session: str, holder: Any) -> None:
        """Replace the boolean options of a message."""
        options = holder.get("configOptions") if isinstance(holder, dict) else None
        if not self._is_needed or not isinstance(options, list):
            return
        known = self.booleans[session]
        for position, option in enumerate(options):
            if not isinstance(option, dict) or option.get("type") != "boolean":
                continue
            known.add(str(option.get("id")))
            options[position] = {
                **option,
                "type": "select",
                "currentValue": "on" if option.get("currentValue") is True else "off",
                "options": [{"value": "on", "name": "On"}, {"value": "off", "name": "Off"}],
            }
