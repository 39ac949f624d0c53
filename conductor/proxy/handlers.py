"""`@on`: the handlers of a plugin class, and which of them run in a version of the protocol.

Declaration errors are raised when the module of the class is imported.

A handler with a type of `conductor.schema.v1` as annotation is for version 1, one with a type of
`conductor.schema.v2` for version 2; all others, also those with a type that both have alike, are
for every version. So a class may have a typed handler of one method for each version.
`versions = {1}` in a class is about the whole proxy.
Handlers of `initialize` always run: the version is known once they have returned.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from conductor.acp import SESSION_END_METHODS, SESSION_SETUP_METHODS
from conductor.proxy.annotations import (
    DeclarationError,
    message_type,
    result_type,
)
from conductor.proxy.event_handlers import author_layers
from conductor.proxy.events import event_marks
from conductor.proxy.middleware import (
    Handler,
    Layer,
    Sender,
    compose,
    handler_layer,
    location_of,
)
from conductor.proxy.session_tracking import (
    Observers,
    add_session_attributes,
    layers_after,
    layers_before,
)
from conductor.proxy.sessions import per_session
from conductor.proxy.tool_servers import tool_layers
from conductor.schema import METHODS, METHODS_BY_VERSION, similar_methods

if TYPE_CHECKING:
    from conductor.proxy.method_types import typed_on
else:

    def typed_on(function):
        return function


__all__ = [
    "ALL_METHODS",
    "VersionFit",
    "handlers_of",
    "is_handler",
    "on",
    "version_fit",
]

F = TypeVar("F", bound=Callable[..., Any])
_Key: TypeAlias = tuple[str, Sender]
"""A method, and the sender of its messages."""

ALL_METHODS: Final = "*"
_MARK: Final = "__acp_handles__"
_BOTH: Final[tuple[Sender, ...]] = ("client", "agent")
_SENDERS: Final[Mapping[str, tuple[Sender, ...]]] = {
    "client": ("client",),
    "agent": ("agent",),
    "both": _BOTH,
    "proxy": (),
}
_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


@typed_on
def on(method: str, *methods: str, source: Sender | None = None) -> Callable[[F], F]:
    """Mark an async method as the handler of a wire method, or of several.

        @on("session/prompt")
        async def add_context(self, request: PromptRequest, forward): ...

        @on("session/list", "session/status")
        async def listed(self, params: dict[str, Any], forward): ...

    The schema says which side sends the method; for extension methods set `source="client"` or
    `source="agent"`, or omit it to handle both. `@on("*")` marks an observer: it gets every message
    that arrives, responses included, as a `RawMessage`, and cannot change it.
    """
    named = (method, *methods)
    if not all(isinstance(each, str) for each in named):
        raise DeclarationError('write @on("<wire method>"), for example @on("session/prompt")')
    shown = ", ".join(map(repr, named))
    if source not in (None, "client", "agent"):
        raise DeclarationError(f'@on({shown}): source is "client" or "agent", not {source!r}')

    def mark(function: F) -> F:
        marks = list(getattr(function, _MARK, ()))
        try:
            setattr(function, _MARK, [*marks, *((each, source) for each in named)])
        except AttributeError:
            raise DeclarationError(
                f"@on({shown}) marks an `async def`, not a {type(function).__name__}; "
                "put @on below other decorators"
            ) from None
        return function

    return mark


def handlers_of(cls: Any, version: int | None = None) -> tuple[Handler, ...]:
    """Return the handlers of a plugin class and its bases. Raises `DeclarationError`.

    A subclass replaces a handler by a method of the same name, as with any method. Several handlers
    of one method run like middleware, in the order of the class and its bases; so do handlers of
    events (`conductor.proxy.events`), which are layers of the methods that carry them. Around them
    are the layers that track sessions and call observers, and around these those of the tools.

    With `version`, handlers with types of another version of the protocol are left out.
    """
    members = list(_members(cls))
    authors: dict[_Key, list[tuple[int, Handler | Layer]]] = defaultdict(list)
    for position, handler in _marked(cls, members):
        if version is None or handler.version in (None, version):
            for sender in handler.senders:
                authors[handler.method, sender].append((position, handler))
    observers = Observers()
    outer: dict[_Key, list[Layer]] = defaultdict(list)
    inner: dict[_Key, list[Layer]] = defaultdict(list)
    for position, (_, function) in enumerate(members):
        for mark in event_marks(function):
            observers.add(mark, function)
            for method, layer in author_layers(function, mark):
                authors[_key(method)].append((position, layer))
    for key, layer in tool_layers(cls).items():
        outer[key].append(layer)
    if observers.by_event:
        if not hasattr(cls, "agent"):
            raise DeclarationError(f"{cls.__name__}: events are for proxies; an agent uses @on")
        if version is None:
            add_session_attributes(cls, observers)
        for method, layers in layers_before(observers).items():
            outer[_key(method)] += layers
        for method, layers in layers_after(observers).items():
            inner[_key(method)] += layers
    keys = dict.fromkeys([*authors, *outer, *inner])
    handlers: dict[Handler, tuple[Sender, ...]] = {}
    for key in keys | dict.fromkeys(_seen_responses(cls, members, bool(keys))):
        own = [each for _, each in sorted(authors.get(key, ()), key=itemgetter(0))]
        handler = _handler_for(key, outer.get(key, ()), own, inner.get(key, ()))
        handlers[handler] = (*handlers.get(handler, ()), key[1])
    return tuple(
        handler if handler.senders == senders else attrs.evolve(handler, senders=senders)
        for handler, senders in handlers.items()
    )


def _seen_responses(
    cls: Any, members: Iterable[tuple[str, Any]], has_handlers: bool
) -> Iterator[_Key]:
    """Yield the methods whose responses the dispatcher looks at, with or without a handler."""
    restarts = getattr(getattr(cls, "on_restart", None), "__qualname__", "Proxy.on_restart")
    has_hook = restarts != "Proxy.on_restart"
    if has_handlers or has_hook or getattr(cls, "versions", None) is not None:
        yield "initialize", "client"  # for `Plugin.protocol_version`, `version_fit`, the hook
    if any(isinstance(value, per_session) for _, value in members):
        for method in sorted(SESSION_SETUP_METHODS | SESSION_END_METHODS):  # to keep or drop state
            yield method, "client"


def _handler_for(
    key: _Key, outer: Sequence[Layer], authors: Sequence[Handler | Layer], inner: Sequence[Layer]
) -> Handler:
    """Make one handler of all handlers and layers of a method and sender."""
    plain = [each for each in authors if isinstance(each, Handler)]
    if key[0] == ALL_METHODS:
        return _all_observers(plain)
    if len(plain) == len(authors) == 1 and not outer and not inner:
        return plain[0]
    own = [each if isinstance(each, Layer) else handler_layer(each) for each in authors]
    return compose(*key, [*outer, *own, *inner])


def _key(method: str) -> _Key:
    """The key of a method that carries an event."""
    return method, "client" if METHODS[method].source == "client" else "agent"


def is_handler(function: Any) -> bool:
    """Whether the function is marked with `@on`."""
    return hasattr(function, _MARK)


def _marked(cls: type, members: Iterable[tuple[str, Any]]) -> Iterator[tuple[int, Handler]]:
    """Yield the `@on` handlers among the members of a class, with their positions."""
    for position, (name, function) in enumerate(members):
        _check_override(cls, name, function)
        for method, source in getattr(function, _MARK, ()):
            where = f"{cls.__name__}.{name}"
            yield position, _handler(where, name, function, method, source)


def _all_observers(handlers: Sequence[Handler]) -> Handler:
    """One observer that calls these observers, in order."""
    first = handlers[0]
    if len(handlers) == 1:
        return first

    async def observe(plugin: Any, message: Any) -> None:
        for handler in handlers:
            await handler.function(plugin, message)

    return attrs.evolve(first, function=observe)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class and its bases in method resolution order, without calling
    descriptors; of those with the same name the first.

    Takes a tenth of the time of `inspect.getattr_static`."""
    seen: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if name not in seen:
                seen.add(name)
                yield name, value


def _check_override(cls: type, name: str, function: Any) -> None:
    """Raise `DeclarationError` for an override of a handler without `@on`: it would be ignored."""
    if is_handler(function) or not callable(function):
        return
    for base in cls.__mro__[1:]:
        marks = getattr(vars(base).get(name), _MARK, ())
        if marks:
            raise DeclarationError(
                f"{cls.__name__}.{name} replaces {base.__name__}.{name}, which handles "
                f"{marks[0][0]!r}; mark it with @on({marks[0][0]!r}) too, or write `{name} = None` "
                f"to handle it no longer"
            )


@lru_cache(maxsize=256)
def _handler(where: str, name: str, function: Any, method: str, source: Sender | None) -> Handler:
    """Return the `Handler` of a function. Cached: it takes 0.1 ms, and attrs creates every class
    with slots twice."""
    senders = _senders(where, method, source)
    if not inspect.iscoroutinefunction(function):
        raise DeclarationError(
            f"{where} handles {method!r} and must be `async def`"
            + (", without `yield`" if inspect.isasyncgenfunction(function) else "")
        )
    parameters = _parameters(where, name, function, method)
    if parameters[0].name == "forward":
        raise DeclarationError(
            f"{where}: the message comes first, then `forward`: "
            f"async def {name}(self, message, forward)"
        )
    annotation = message_type(where, function, parameters[0].name, method)
    return Handler(
        method,
        function,
        senders,
        annotation,
        result_type(method, annotation),
        takes_forward=len(parameters) == 2,
        location=location_of(function),
    )


def _parameters(where: str, name: str, function: Any, method: str) -> list[inspect.Parameter]:
    """Return the parameters for the message and, if present, for `forward`."""
    given = list(inspect.signature(function).parameters.values())[1:]
    needed = [p for p in given if p.default is p.empty and p.kind not in _VARIABLE]
    usable = [p for p in given if p.kind in _POSITIONAL]
    if method == ALL_METHODS:
        if len(needed) == len(usable) == 1:
            return usable
        raise DeclarationError(
            f"{where} observes every message and takes nothing else: "
            f"async def {name}(self, message: RawMessage); to change messages, handle them by name"
        )
    if len(given) == len(usable) and len(usable) in (1, 2) and len(needed) == len(usable):
        return usable
    raise DeclarationError(
        f"{where} must take the message and, if it passes it on, `forward`: "
        f"async def {name}(self, message, forward)"
    )


_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _senders(where: str, method: str, source: Sender | None) -> tuple[Sender, ...]:
    known = METHODS.get(method)
    if known is None:
        if method != ALL_METHODS and source is None and not method.startswith("_"):
            _raise_unknown(where, method)
        return (source,) if source is not None else _BOTH
    senders = _SENDERS[known.source]
    if not senders or method == "$/cancel_request":
        raise DeclarationError(
            f"{where} handles {method!r}, which the conductor handles itself and never delivers; "
            + (
                "cancellation reaches the handler of the cancelled request (lane rule 6)"
                if not method.startswith("proxy/")
                else "handle the message inside of it by its own name"
            )
        )
    if source is not None and source not in senders:
        raise DeclarationError(
            f"{where} handles {method!r} of the {source}, but only the {senders[0]} sends it; "
            f"leave out source="
        )
    return (source,) if source is not None else senders


def _raise_unknown(where: str, method: str) -> None:
    near = similar_methods(method)
    hint = f": did you mean {near[0]!r}?" if near else ""
    raise DeclarationError(
        f"{where} handles {method!r}, which is not an ACP method{hint} "
        f"(extension methods begin with an underscore, or name their source=)"
    )


@attrs.frozen
class VersionFit:
    """The handlers of a proxy class that run in one protocol version, and those that do not."""

    handlers: tuple[Handler, ...]
    """The handlers that run."""
    left_out: tuple[Handler, ...] = ()
    """Handlers for another version, of methods without a typed handler for this one."""
    is_bypassed: bool = False
    """Whether the version is not in `versions` of the class: no handler runs."""

    @property
    def is_complete(self) -> bool:
        """Whether everything that the author wrote runs."""
        return not self.left_out and not self.is_bypassed

    def problem(self, cls: Any, version: int) -> str:
        """The reason why a required proxy refuses the version."""
        negotiated = f"client and agent speak version {version} of the protocol"
        if self.is_bypassed:
            supported = " and ".join(str(each) for each in sorted(cls.versions))
            return f"{negotiated}, and {cls.__name__} is for version {supported}"
        first = self.left_out[0]
        return (
            f"{negotiated}, and the handler of {first.method!r} at {first.location} is for version "
            f"{first.version}: add a handler with a type of conductor.schema.v{version}, or one "
            "with plain params"
        )


def version_fit(cls: Any, version: int) -> VersionFit:
    """Return the fit of a plugin class; kept with the class, for the next chain."""
    kept: dict[int, VersionFit] = cls._acp_version_fits
    if version not in kept:
        kept[version] = _version_fit(cls, version)
    return kept[version]


def _version_fit(cls: Any, version: int) -> VersionFit:
    if cls.versions is not None and version not in cls.versions:
        return VersionFit((), is_bypassed=True)
    marked = [handler for _, handler in _marked(cls, _members(cls))]
    if all(handler.version in (None, version) for handler in marked):
        return VersionFit(cls._acp_handlers)
    return VersionFit(handlers_of(cls, version), tuple(_left_out(marked, version)))


def _left_out(marked: Iterable[Handler], version: int) -> Iterable[Handler]:
    marked = [handler for handler in marked if handler.version is not None]
    replaced = {handler.method for handler in marked if handler.version == version}
    occurring = METHODS_BY_VERSION.get(version, METHODS).keys() - replaced - {"initialize"}
    return (
        handler for handler in marked if handler.version != version and handler.method in occurring
    )
