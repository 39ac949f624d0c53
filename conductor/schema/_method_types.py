"""Writes the stub `conductor/proxy/method_types.pyi`: for type checkers, the types of the handler
of each method.

A handler is checked by a type variable per method, so that its own type is kept and an error names
the method: `on("session/prompt")` returns a decorator for a `SessionPromptHandler`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

__all__ = ["method_types_stub", "pascal"]

_ROLES = ("Request", "Response", "Notification")
_IMPORTS = """
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from conductor.proxy.annotations import Forward, RawMessage
from conductor.schema import v1, v2

M = TypeVar("M")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Sender: TypeAlias = Literal["client", "agent"]
Json: TypeAlias = dict[str, Any]

Answer: TypeAlias = Awaitable[R | Mapping[str, Any] | bytes | None]

RequestHandler: TypeAlias = (
    Callable[[Any, M, Forward[M, R]], Answer[R]] | Callable[[Any, M], Answer[R]]
)
PlainRequestHandler: TypeAlias = (
    Callable[[Any, Json, Forward[Json, Json]], Answer[R]]
    | Callable[[Any, Json], Answer[R]]
    | Callable[[Any, bytes, Forward[bytes, bytes]], Answer[R]]
    | Callable[[Any, bytes], Answer[R]]
)
NotificationHandler: TypeAlias = (
    Callable[[Any, M, Forward[M, None]], Awaitable[None]] | Callable[[Any, M], Awaitable[None]]
)
PlainNotificationHandler: TypeAlias = NotificationHandler[Json] | NotificationHandler[bytes]
Observer = TypeVar("Observer", bound=Callable[[Any, RawMessage], Awaitable[None]])
"""
_ON = """

class On(Protocol):
    @overload
    def __call__(
        self, method: Literal["*"], *, source: Sender | None = None
    ) -> Callable[[Observer], Observer]: ...
"""
_ON_OTHERS = """
    @overload
    def __call__(
        self, method: str, /, *methods: str, source: Sender | None = None
    ) -> Callable[[F], F]: ...

def typed_on(function: Callable[..., Any]) -> On: ...
"""


def method_types_stub(
    header: str, methods: Mapping[int, Mapping[str, dict[str, Any]]], shared: Container[str]
) -> Iterator[str]:
    """Yield the text of the stub; `methods` has the methods of each protocol version, `shared` the
    types that are the same in all.

    Left out are those that the conductor handles itself.
    """
    versions: dict[str, dict[int, dict[str, Any]]] = {}
    for version, rows in methods.items():
        for name, row in rows.items():
            if row["source"] != "proxy" and not name.startswith("$/"):
                types = {role: row[role] for role in _ROLES if role in row}
                if name not in versions or any(each not in shared for each in types.values()):
                    versions.setdefault(name, {})[version] = types
    yield header
    yield _IMPORTS
    for name, rows_of in sorted(versions.items()):
        yield f'{_handler(name)} = TypeVar("{_handler(name)}", bound={_bound(rows_of)})\n'
    yield _ON
    for name in sorted(versions):
        yield "    @overload\n    def __call__(\n"
        yield f'        self, method: Literal["{name}"], *, source: Sender | None = None\n'
        yield f"    ) -> Callable[[{_handler(name)}], {_handler(name)}]: ...\n"
    yield _ON_OTHERS


def _handler(method: str) -> str:
    return pascal(method) + "Handler"


def pascal(value: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_\-/]", value))


def _bound(rows: Mapping[int, dict[str, Any]]) -> str:
    """The types of the handlers of a method, by version, and those for plain JSON."""
    typed, responses, notified = [], [], False
    for version, row in rows.items():
        if "Request" in row:
            request, response = f"v{version}.{row['Request']}", f"v{version}.{row['Response']}"
            typed.append(f"RequestHandler[{request}, {response}]")
            responses.append(response)
        if "Notification" in row:
            typed.append(f"NotificationHandler[v{version}.{row['Notification']}]")
            notified = True
    plain = [f"PlainRequestHandler[{' | '.join(responses)}]"] if responses else []
    plain += ["PlainNotificationHandler"] if notified else []
    return " | ".join([*typed, *plain])
