"""File with remembered settings of one agent, shared by the chains of a user.

It has the settings of the sessions that were last changed, and under `latest` those for new ones.
Only its owner can read it. It is replaced at once, under a lock, so that two chains lose nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from conductor.files import locked, read_own, replacing
from conductor.json_values import decode_loosely
from proxies.remember.chosen_settings import Setting

__all__ = ["SettingsFile"]

_MAX_SESSIONS = 200
_MAX_SETTINGS = 100
_MAX_VALUE = 1000
"""Characters of an id or a value; longer ones are not remembered."""
_MAX_BYTES = 16 * 1024 * 1024
_PATIENCE = 5.0
"""Seconds to wait for the lock."""


@attrs.frozen
class SettingsFile:
    """The file at `path`; each call reads it anew."""

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


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
