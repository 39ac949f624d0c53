"""Mode, model and options that were set in the sessions of an agent, for its restart. Pure.

Recorded are the requests that the agent has accepted, the latest of each setting, in the order in
which they were set; a later change by the agent (`current_mode_update`, `config_option_update`, the
list in the answer to another option) replaces the value. A setting without a request is not
recorded: the agent gives a resumed session its own default. The updates are only looked at after
the first request. Also recorded is whether a session was prompted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from conductor.acp import PROMPT, SESSION_SETTING_METHODS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decoded_members
from conductor.jsonrpc.messages import Payload, RawMember
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.session_log import SessionLog
from conductor.routing.stage import (
    ForwardBatch,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StageMethod,
)
from conductor.setting_forms import Kind, option_id, option_of

__all__ = ["KINDS", "SET_MODE", "SettingsLog", "set_value"]

SET_MODE: Final = "session/set_mode"
_SET_MODEL: Final = "session/set_model"
SET_OPTION: Final = "session/set_config_option"
_VALUE_NAMES: Final = {SET_MODE: "modeId", _SET_MODEL: "modelId", SET_OPTION: "value"}
_METHODS_OF_CATEGORIES: Final = {"mode": SET_MODE, "model": _SET_MODEL}
"""Methods that set the same as an option of this category."""
KINDS: Final[Mapping[str, Kind]] = {SET_MODE: "mode", _SET_MODEL: "model", SET_OPTION: "option"}
_OF_PROMPT: Final = ("receive_response", PROMPT)
_MAX_PARAMS: Final = 65536
"""Bytes of the params of one setting; larger ones are not recorded."""
_MODE_UPDATE: Final = re.compile(rb'"current_mode_update"')
_OPTION_UPDATE: Final = re.compile(rb'"config_option_update"')

Key: TypeAlias = tuple[str, str]
"""A method, and the id of the option; empty for mode and model."""


class SettingsLog(Stage):
    """Records the settings of an agent's sessions in the session log."""

    __slots__ = ("_log", "_unanswered", "_wants_updates", "paused")

    name = "settings"
    sent: frozenset[str] = SESSION_SETTING_METHODS | {PROMPT}
    received: frozenset[str] = frozenset({SESSION_UPDATE})

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._wants_updates = False
        """Whether a setting was recorded, so that updates may change it."""
        self._unanswered: dict[InFlightRequest, bytes] = {}
        self.paused: bool = False
        """Whether updates are ignored: those that a restarted agent sends during its replay tell
        its defaults."""

    def takes(self, kind: StageMethod, method: str) -> bool:
        is_update = kind in ("receive_notification", "receive_batch")
        is_wanted = self._wants_updates if is_update else (kind, method) != _OF_PROMPT
        return is_wanted and super().takes(kind, method)

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if method == PROMPT:
            if (record := self._log.sessions.get(call.session or "")) is not None:
                record.is_prompted = True
        elif params is not None and len(params) <= _MAX_PARAMS:
            self._unanswered[call] = bytes(params)
        forward(call, method, params)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        params = self._unanswered.pop(call, None)
        if params is not None and result is not None:
            self._was_set(call.method, params, result)
        forward(call, result, error)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if params is not None and _may_change_settings(params):
            self._on_update(params)
        forward(method, params)

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        if notifications.has(_may_change_settings):
            for params in notifications.params:
                if _may_change_settings(params):
                    self._on_update(params)
        forward(notifications)

    def _was_set(self, method: str, params: bytes, result: Payload) -> None:
        """The agent has accepted a request of `SESSION_SETTING_METHODS`."""
        decoded = decoded_members(params)
        session = decoded.get("sessionId")
        option = decoded.get("configId", "") if method == SET_OPTION else ""
        if isinstance(session, str) and isinstance(option, str):
            self._set(session, (method, option), params)
            self._forget_option_of(session, method)
            options = decoded_members(result).get("configOptions")
            if isinstance(options, list):
                self._options_changed(session, options)

    def _forget_option_of(self, session: str, method: str) -> None:
        """A mode or a model was set: an option of its category was set to something else before."""
        record = self._log.sessions.get(session)
        if method == SET_OPTION or record is None or record.result is None:
            return
        option = option_of(KINDS[method], decoded_members(record.result))
        if option is not None and (id := option_id(option)) is not None:
            self._log.log_setting(session, (SET_OPTION, id), None)

    def _on_update(self, params: Payload) -> None:
        decoded = decoded_members(params)
        session, update = decoded.get("sessionId"), decoded.get("update")
        if self.paused or not isinstance(session, str) or not isinstance(update, dict):
            return
        match update:
            case {"sessionUpdate": "current_mode_update", "currentModeId": str(mode)}:
                self._change(session, (SET_MODE, ""), mode)
            case {"sessionUpdate": "config_option_update", "configOptions": list(options)}:
                self._options_changed(session, options)

    def _options_changed(self, session: str, options: Sequence[Any]) -> None:
        """The agent told all options of a session: drop those that it has no more, and replace the
        values that have changed."""
        record = self._log.sessions.get(session)
        if record is None:
            return
        present = {id: each for each in options if (id := option_id(each)) is not None}
        for method, option in list(record.settings):
            if method == SET_OPTION and option not in present:
                self._log.log_setting(session, (method, option), None)
        for option, each in present.items():
            value = each.get("currentValue")
            if not isinstance(value, str | bool):
                continue
            same = _METHODS_OF_CATEGORIES.get(str(each.get("category")))
            if same is not None and (params := record.settings.get((same, ""))) is not None:
                if decoded_members(params).get(_VALUE_NAMES[same]) != value:
                    self._log.log_setting(session, (same, ""), None)
                    self._change(session, (SET_OPTION, option), value)
            elif (SET_OPTION, option) in record.settings:
                self._change(session, (SET_OPTION, option), value)

    def _change(self, session: str, key: Key, value: str | bool) -> None:
        """Record a value that the agent has told, unless it is that of the last request."""
        record = self._log.sessions.get(session)
        params = None if record is None else record.settings.get(key)
        method, option = key
        members = {} if params is None else decoded_members(params)
        if params is not None and members.get(_VALUE_NAMES[method]) == value:
            return
        members |= {"sessionId": session, _VALUE_NAMES[method]: value}
        if method == SET_OPTION:
            members["configId"] = option
            if isinstance(value, bool):
                members["type"] = "boolean"
        self._set(session, key, msgspec.json.encode(members))

    def _set(self, session: str, key: Key, params: bytes) -> None:
        self._log.log_setting(session, key, params)
        if not self._wants_updates:
            self._wants_updates = True
            self.port.changed()


def set_value(method: str, params: Payload) -> Any:
    """The value that a request sets, by its raw params."""
    return decoded_members(params).get(_VALUE_NAMES[method])


def _may_change_settings(data: Payload) -> bool:
    return _MODE_UPDATE.search(data) is not None or _OPTION_UPDATE.search(data) is not None
