"""State per session: made on first use, gone with the session.

    class Notes(Proxy):
        notes = per_session(dict)

`self.notes[session_id]` makes the state when it is first asked for. It is dropped when a
`session/close` or `session/delete` of that session has succeeded on its way through the proxy, and
when the chain ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, overload

__all__ = ["ENDS", "forget", "forget_all", "per_session"]

T = TypeVar("T")

ENDS: Final = ("session/close", "session/delete")
"""The requests that, once they have succeeded, end a session."""


class per_session(Generic[T]):
    """A class attribute that holds, per instance, one `factory()` per session id.

    Write it without an annotation: it is no option of the plugin.
    """

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> per_session[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> defaultdict[str, T]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        states = _states(instance)
        found = states.get(self._name)
        if found is None:
            found = states[self._name] = defaultdict(self._factory)
        return found


def forget(plugin: Any, session_id: str) -> None:
    """Drop what a plugin keeps for a session."""
    for sessions in _states(plugin).values():
        sessions.pop(session_id, None)


def forget_all(plugin: Any) -> None:
    """Drop what a plugin keeps for any session."""
    _states(plugin).clear()


def _states(plugin: Any) -> dict[str, defaultdict[str, Any]]:
    """By the attributes' names; kept in a slot of `Plugin`, which no author's `__init__` fills."""
    try:
        states: dict[str, defaultdict[str, Any]] = plugin._acp_sessions
    except AttributeError:
        states = plugin._acp_sessions = {}
    return states
