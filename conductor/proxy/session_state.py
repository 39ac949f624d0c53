"""State per session: created on first use, dropped when the session ends.

    class Notes(Proxy):
        notes = per_session(dict)

        @per_session
        def log(self):
            return deque(maxlen=self.log_size)

`self.notes[session_id]` creates the state on first access; a factory with one parameter gets the
plugin, for its options. It is dropped when a `session/close` or
`session/delete` of the session has succeeded through the proxy, and when the chain ends. For
session ids that no successful `session/new`, `load`, `resume` or `fork` has opened (a client or an
agent can invent them), the state of the newest 1000 is kept, with ids of 1 MiB in all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from inspect import signature
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, overload

import attrs

from conductor.proxy.annotations import DeclarationError

__all__ = [
    "forget_all_sessions",
    "forget_session",
    "mark_sessions_open",
    "per_session",
]

T = TypeVar("T")

_MAX_UNOPENED: Final = 1000
_MAX_UNOPENED_CHARACTERS: Final = 1024 * 1024
"""Maximum characters of their ids, without the newest one."""


class per_session(Generic[T]):
    """A class attribute with one value of `factory` per plugin instance and session id.

    The factory is a class, a function without parameters, or a method: it gets the plugin. Declare
    the attribute without an annotation: with one it would be an option of the plugin.
    """

    def __init__(self, factory: Callable[[], T] | Callable[[Any], T]) -> None:
        if not callable(factory):
            raise DeclarationError(
                f"per_session({factory!r}): write a function that makes the value of each session, "
                f"such as `per_session(list)` or `per_session(lambda: …)`"
            )
        self._factory: Callable[..., T] = factory
        self._takes_plugin = (
            isinstance(factory, FunctionType) and len(signature(factory).parameters) == 1
        )
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
        kept = _sessions_of(instance)
        found = kept.states.get(self._name)
        if found is None:
            factory = partial(self._factory, instance) if self._takes_plugin else self._factory
            found = kept.states[self._name] = _States(self._name, factory, kept.open)
        return found


class _States(defaultdict[str, T]):
    """The values of one attribute, by session id; bounded for sessions that are not open."""

    def __init__(self, name: str, factory: Callable[[], T], open: set[str]) -> None:
        super().__init__(factory)
        self._name = name
        self._open = open
        self._unknown: dict[str, None] = {}
        """Ids that were not open when their value was created, oldest first."""
        self._characters = 0
        """Characters of the ids in `_unknown`."""

    def __missing__(self, id: str) -> T:
        if not isinstance(id, str):
            name = self._name
            raise TypeError(
                f"{name}[…] takes the id of a session, not a {type(id).__name__}: "
                f"write `self.{name}[session.id]`"
            )
        if id not in self._open and id not in self._unknown:
            self._unknown[id] = None
            self._characters += len(id)
            while self._are_too_many():
                oldest = next(iter(self._unknown))
                del self._unknown[oldest]
                self._characters -= len(oldest)
                if oldest not in self._open:
                    self.pop(oldest, None)
        return super().__missing__(id)

    def _are_too_many(self) -> bool:
        count = len(self._unknown)
        return count > _MAX_UNOPENED or (self._characters > _MAX_UNOPENED_CHARACTERS and count > 1)


@attrs.define
class _PluginSessions:
    """The session state of one plugin."""

    open: set[str] = attrs.field(factory=set)
    """Ids of open sessions; the limit `max_sessions` bounds their number."""
    states: dict[str, _States[Any]] = attrs.field(factory=dict)
    """By attribute name."""


def mark_sessions_open(plugin: Any, session_ids: Iterable[str]) -> None:
    """Record sessions as open: their state is kept until they end."""
    _sessions_of(plugin).open.update(session_ids)


def forget_session(plugin: Any, session_id: str) -> None:
    """Drop the state of a session."""
    kept = _sessions_of(plugin)
    kept.open.discard(session_id)
    for sessions in kept.states.values():
        sessions.pop(session_id, None)


def forget_all_sessions(plugin: Any) -> None:
    """Drop the state of all sessions."""
    kept = _sessions_of(plugin)
    kept.open.clear()
    kept.states.clear()


def _sessions_of(plugin: Any) -> _PluginSessions:
    """Return the session state of a plugin, created on first use: an author's `__init__` does not
    set its slot."""
    try:
        kept: _PluginSessions = plugin._acp_sessions
    except AttributeError:
        kept = plugin._acp_sessions = _PluginSessions()
    return kept
