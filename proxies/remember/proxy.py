"""`remember`: gives new sessions the mode, the model and the options that the user last selected.

Settings that the client makes in a session, and the agent accepts, are remembered by agent. A new
session gets them before the client sees the session: the response to `session/new` has the values,
so that the client shows them. A session that is loaded or resumed gets its own settings again. Only
values that the agent still offers are set. Changes that the agent makes itself, as when it leaves
its plan mode, are not remembered, nor settings of a subagent's session. A mode in which the agent
asks no questions is remembered like any other: name it in `never`.

Options:
    scope      project (default): for sessions in exactly this directory, not in those below it;
               user: the same for all
    never      values that are not remembered and not set, such as a mode without questions
    timeout    time for all settings of a session; what is not set by then keeps the value that the
               agent has given it; default 10s
    directory  where the files are, readable by their owner only; default: `remember` in the
               user's state directory (`~/.local/state/acp-conductor` on Linux)
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import trio
from attrs.validators import gt

from conductor.directories import directory_spellings
from conductor.proxy import (
    Forward,
    Proxy,
    RequestError,
    Session,
    SessionSetup,
    get_logger,
    on,
    on_session_setup,
    on_update,
)
from conductor.setting_forms import current_value, option_of, state_after
from proxies.remember.chosen_settings import (
    Setting,
    is_current,
    is_offered,
    is_reported,
    request_for,
    same_setting,
    setting_of,
    state_updates,
    without_repeated,
)
from proxies.remember.settings_file import SettingsFile

__all__ = ["Remember"]

log = get_logger(component="remember")


@attrs.define
class Remember(Proxy):
    """Give new sessions the mode, the model and the options that were last selected."""

    scope: Literal["project", "user"] = "project"
    never: list[str] = attrs.field(factory=list)
    timeout: timedelta = attrs.field(default=timedelta(seconds=10), validator=gt(timedelta()))
    directory: Path | None = None
    _states: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)
    """The state of each session that gets its settings, before its response is sent."""

    @on_session_setup
    async def set_up(self, setup: SessionSetup, forward: Forward) -> Any:
        is_new = setup.opened_by == "new"
        if setup.opened_by == "fork":
            return await forward()  # it has the settings of its session
        file = self._file(setup.cwd)
        read = file.latest if is_new else partial(file.of_session, setup.session_id or "")
        try:
            settings = await trio.to_thread.run_sync(read)
        except (OSError, ValueError) as exc:
            log.warning("remembered settings not read", error=str(exc))
            return await forward()
        result = await forward()
        state = result if isinstance(result, dict) else {}  # to load, agents may answer `null`
        session = state.get("sessionId", setup.session_id)
        if not isinstance(session, str):
            return result
        changed = await self._with_settings(session, settings, state, is_new=is_new)
        return changed if changed else result

    @on(
        *("session/set_mode", "session/set_model", "session/set_config_option"),
        source="client",
    )
    async def setting_made(self, params: dict[str, Any], forward: Forward) -> Any:
        """Remember a setting if the agent has accepted it."""
        result = await forward()
        setting, id = setting_of(params), params.get("sessionId")
        if setting is None or not isinstance(id, str) or setting[2] in self.never:
            return result
        session = self.session_by_id(id)
        if session.parent is None:
            try:
                forms = same_setting(setting, {"configOptions": session.config_options})
                await trio.to_thread.run_sync(self._file(session.cwd).add, id, setting, forms)
            except OSError as exc:
                log.warning("setting not remembered", error=str(exc))
        return result

    @on_update("current_mode_update", "config_option_update")
    async def told(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        """Make updates of an earlier session part of its response, if they come before it."""
        is_mode = update["sessionUpdate"] == "current_mode_update"
        state = self._states.get(session.id, {})
        if state.get("modes" if is_mode else "configOptions") is None:
            await forward()
        elif is_mode:
            self._states[session.id] = state_after(state, "mode", update.get("currentModeId"), {})
        else:
            self._states[session.id] = state_after(state, "option", None, update)

    # ----------------------------------------------------------------------------------------------

    async def _with_settings(
        self, session: str, settings: list[Setting], result: dict[str, Any], *, is_new: bool
    ) -> dict[str, Any]:
        """Set what the agent offers; returns the result of the set-up with the values.

        Of an earlier session an agent need not say what it offers: it has accepted these values.
        """
        mode: Any = None
        has_set = False
        self._states[session] = result
        try:
            with trio.move_on_after(self.timeout.total_seconds()) as scope:
                for setting in without_repeated(settings, result):
                    told = await self._set(session, setting, is_new=is_new)
                    if told is None:
                        continue
                    has_set = True
                    kind, _, value = setting
                    state = state_after(self._states[session], kind, value, told)
                    self._states[session] = state
                    mode = setting[2] if setting[0] == "mode" else mode
                    if mode is not None and option_of("mode", state) is not None:
                        mode = current_value("mode", state)
        finally:
            result = self._states.pop(session)
        if scope.cancelled_caught:
            log.warning("remembered settings not set in time (timeout)", session=session)
        if mode is not None and result.get("modes") is None:  # the response cannot tell it
            update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
            self.after_answer(self.client.update, session, update)
        if is_new and has_set:
            # What the agent has told of a new session meanwhile comes after the response, and is
            # out of date; this comes behind it.
            for update in state_updates(result):
                await self.client.update(session, update)
        return result

    async def _set(self, session: str, setting: Setting, *, is_new: bool) -> dict[str, Any] | None:
        """Set what the session does not have yet; returns the agent's answer, or `None`."""
        state = self._states[session]
        if setting[2] in self.never or is_current(setting, state):
            return None
        if (is_new or is_reported(setting, state)) and not is_offered(setting, state):
            log.info("remembered setting not offered", session=session, setting=setting)
            return None
        method, params = request_for(setting, session, self.protocol_version)
        try:
            answer = await self.agent.request(method, params)
        except RequestError as exc:
            log.warning(
                "remembered setting refused", session=session, setting=setting, error=str(exc)
            )
            return None
        return answer if isinstance(answer, dict) else {}

    def _file(self, cwd: str) -> SettingsFile:
        """The file of this agent, in the scope of a session with this directory."""
        names = [str(self.agent_info.get("name") or "")]
        if self.scope == "project":
            names.append(directory_spellings(cwd)[-1])
        key = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]
        return SettingsFile((self.directory or _state_directory()) / f"{key}.json")


def _state_directory() -> Path:
    from platformdirs import user_state_path

    return user_state_path("acp-conductor", appauthor=False) / "remember"
