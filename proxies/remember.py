"""`remember`: gives new sessions the mode, the model and the options that the user last selected.

Settings that the client makes in a session, and the agent accepts, are remembered by agent. A new
session gets them before the client sees the session, options with the request if the agent takes
them so (`session.options`): the response to `session/new` has the values,
so that the client shows them. A session that is loaded or resumed gets its own settings again. Only
values that the agent still offers are set. Changes that the agent makes itself, as when it leaves
its plan mode, are not remembered, nor settings of a subagent's session. A mode in which the agent
asks no questions is remembered like any other: name it in `never`.

A setting is `(kind, id, value)`: kind `mode` or `model` with an empty id, or `option` with the id
of a configuration option. The results of session set-ups say what an agent offers.

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
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio
from attrs.validators import gt

from conductor.directories import directory_spellings
from conductor.files import locked, read_own, replacing
from conductor.json_values import decode_loosely
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
from conductor.setting_forms import (
    Kind,
    current_value,
    option_id,
    option_of,
    option_values,
    state_after,
)
from proxies.shared.capabilities import has_member

__all__ = ["Remember", "SettingsFile"]

Setting: TypeAlias = tuple[Kind, str, str | bool]

_VALUE_NAMES: Final[Mapping[Kind, str]] = {"mode": "modeId", "model": "modelId", "option": "value"}
_METHODS: Final[Mapping[Kind, str]] = {
    "mode": "session/set_mode",
    "model": "session/set_model",
    "option": "session/set_config_option",
}
_STATES: Final[Mapping[Kind, tuple[str, str, str, str]]] = {
    "mode": ("modes", "availableModes", "id", "currentModeId"),
    "model": ("models", "availableModels", "modelId", "currentModelId"),
}
_MAX_SESSIONS = 200
_MAX_SETTINGS = 100
_MAX_VALUE = 1000
"""Characters of an id or a value; longer ones are not remembered."""
_MAX_BYTES = 16 * 1024 * 1024
_PATIENCE = 5.0
"""Seconds to wait for the lock."""

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
        if self._takes_initial_options:
            self._add_initial_options(setup.params, settings)
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
        setting, id = _setting_of(params), params.get("sessionId")
        if setting is None or not isinstance(id, str) or setting[2] in self.never:
            return result
        session = self.session_by_id(id)
        if session.parent is None:
            try:
                forms = _same_setting(setting, {"configOptions": session.config_options})
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

    @property
    def _takes_initial_options(self) -> bool:
        place = ("sessionCapabilities",) if self.protocol_version == 1 else ("session",)
        return has_member(self.agent_capabilities, (*place, "options"))

    def _add_initial_options(self, params: dict[str, Any], settings: list[Setting]) -> None:
        """Have the agent set the options itself; it ignores values that it does not offer."""
        given = params.get("configOptions") or []
        ids = {each.get("configId") for each in given if isinstance(each, dict)}
        added = [
            _initial_option(each, self.protocol_version)
            for each in settings
            if each[0] == "option" and each[1] not in ids and each[2] not in self.never
        ]
        if added:
            params["configOptions"] = [*given, *added]

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
                for setting in _without_repeated(settings, result):
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
            for update in _state_updates(result):
                await self.client.update(session, update)
        return result

    async def _set(self, session: str, setting: Setting, *, is_new: bool) -> dict[str, Any] | None:
        """Set what the session does not have yet; returns the agent's answer, or `None`."""
        state = self._states[session]
        if setting[2] in self.never or _is_current(setting, state):
            return None
        if (is_new or _is_reported(setting, state)) and not _is_offered(setting, state):
            log.info("remembered setting not offered", session=session, setting=setting)
            return None
        method, params = _request_for(setting, session, self.protocol_version)
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


@attrs.frozen
class SettingsFile:
    """File with remembered settings of one agent, shared by the chains of a user.

    It has the settings of the sessions that were last changed, and under `latest` those for new
    ones. Only its owner can read it. It is replaced at once, under a lock, so that two chains lose
    nothing. Each call reads it anew.
    """

    path: Path

    def latest(self) -> list[Setting]:
        """The settings for a new session, in the order in which they were set.

        Raises `OSError`, and `ValueError` if it is not such a file.
        """
        return _settings(self._read().get("latest"))

    def of_session(self, session: str) -> list[Setting]:
        """The settings of one session. Raises like `latest`."""
        return _settings(_object(self._read().get("sessions")).get(session))

    def add(self, session: str, setting: Setting, forms: Sequence[tuple[str, str]] = ()) -> None:
        """Remember a setting, as the last one, in place of its other forms (kind and id). A damaged
        file is replaced. Raises `OSError`."""
        _, id, value = setting
        if max(len(session), len(id), 0 if isinstance(value, bool) else len(value)) > _MAX_VALUE:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock"), _PATIENCE):
            try:
                before = self._read()
            except ValueError:
                before = {}
            sessions = _object(before.get("sessions"))
            own = _with(_settings(sessions.pop(session, None)), setting, forms)
            sessions[session] = own
            for oldest in list(sessions)[:-_MAX_SESSIONS]:
                del sessions[oldest]
            latest = _with(_settings(before.get("latest")), setting, forms)
            with replacing(self.path) as file:
                file.write(json.dumps({"latest": latest, "sessions": sessions}).encode())

    def _read(self) -> dict[str, Any]:
        try:
            data = read_own(self.path, _MAX_BYTES)
        except FileNotFoundError:
            return {}
        try:
            return _object(decode_loosely(data))
        except ValueError as exc:
            raise ValueError(f"{self.path} is not valid JSON: {exc}") from None


def _state_directory() -> Path:
    from platformdirs import user_state_path

    return user_state_path("acp-conductor", appauthor=False) / "remember"


def _setting_of(params: Mapping[str, Any]) -> Setting | None:
    """The setting of a request that sets one; `None` if it is malformed."""
    kind: Kind = next((each for each, name in _VALUE_NAMES.items() if name in params), "option")
    id = params.get("configId") if kind == "option" else ""
    value = params.get(_VALUE_NAMES[kind])
    if not isinstance(id, str) or not isinstance(value, str | bool):
        return None
    return kind, id, value


def _request_for(
    setting: Setting, session: str, protocol_version: int
) -> tuple[str, dict[str, Any]]:
    """Method and params of the request that sets it."""
    kind, id, value = setting
    params: dict[str, Any] = {"sessionId": session, _VALUE_NAMES[kind]: value}
    if kind == "option":
        params["configId"] = id
        if isinstance(value, bool):
            params["type"] = "boolean"
        elif protocol_version > 1:
            params["type"] = "id"
    return _METHODS[kind], params


def _initial_option(setting: Setting, protocol_version: int) -> dict[str, Any]:
    """The setting of an option, as a session set-up has it."""
    _, params = _request_for(setting, "", protocol_version)
    return {name: value for name, value in params.items() if name != "sessionId"}


def _is_offered(setting: Setting, state: Mapping[str, Any]) -> bool:
    """Whether the agent offers this value, by the result of a set-up."""
    kind, id, value = setting
    if kind == "option":
        option = _option(id, state)
        if option is None:
            return False
        if isinstance(value, bool):
            return option.get("type") == "boolean"
        return value in option_values(option.get("options"))
    holder, list_name, id_name, _ = _STATES[kind]
    return any(
        each.get(id_name) == value for each in _objects(_object(state.get(holder)).get(list_name))
    )


def _is_reported(setting: Setting, state: Mapping[str, Any]) -> bool:
    """Whether the agent says which values of this kind there are, by the result of a set-up."""
    kind = setting[0]
    return state.get("configOptions" if kind == "option" else _STATES[kind][0]) is not None


def _is_current(setting: Setting, state: Mapping[str, Any]) -> bool:
    """Whether the session has this value already, by the result of a set-up."""
    kind, id, value = setting
    if kind == "option":
        return (_option(id, state) or {}).get("currentValue") == value
    holder, _, _, current = _STATES[kind]
    return _object(state.get(holder)).get(current) == value


def _same_setting(setting: Setting, state: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The kinds and ids of this setting in all forms that the agent offers, its own first."""
    kind, id, _ = setting
    found = [(kind, id)]
    for category in _STATES:
        option = option_of(category, state)
        forms = [(category, "")]
        # Without a list of options, ids are all that is known of them.
        forms.append(("option", category if option is None else option_id(option) or category))
        if (kind, id) in forms:
            found += [each for each in forms if each != (kind, id)]
    return found


def _state_updates(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Updates with the mode and the options of a state."""
    if isinstance(mode := _object(state.get("modes")).get("currentModeId"), str):
        yield {"sessionUpdate": "current_mode_update", "currentModeId": mode}
    if isinstance(options := state.get("configOptions"), list):
        yield {"sessionUpdate": "config_option_update", "configOptions": options}


def _without_repeated(settings: Sequence[Setting], state: Mapping[str, Any]) -> list[Setting]:
    """The settings, in order; of one in two forms only the one that was set last. A mode or model
    that the agent offers as an option alone becomes one."""
    kept: list[Setting] = []
    for setting in settings:
        forms = _same_setting(setting, state)
        kept = [each for each in kept if each[:2] not in forms]
        kind, _, value = setting
        if kind != "option" and state.get(_STATES[kind][0]) is None:
            option = option_of(kind, state)
            setting = setting if option is None else ("option", option_id(option) or "", value)
        kept.append(setting)
    return kept


def _option(id: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
    for each in _objects(state.get("configOptions")):
        if option_id(each) == id:
            return each
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _with(
    settings: list[Setting], setting: Setting, forms: Sequence[tuple[str, str]]
) -> list[Setting]:
    kept = [each for each in settings if each[:2] not in (setting[:2], *forms)]
    return [*kept, setting][-_MAX_SETTINGS:]


def _settings(value: Any) -> list[Setting]:
    found: list[Setting] = []
    for each in value if isinstance(value, list) else ():
        match each:
            case ["mode" | "model" | "option" as kind, str(id), str(set_to) | bool(set_to)]:
                found.append((kind, id, set_to))
    return found
