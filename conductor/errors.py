"""The exception tree. Every error says which component, which message, and what to try.

`RequestError` is both raised to answer a request and raised when a request was answered with an
error, so a handler that does not catch it passes the error on unchanged. Exceptions become wire
errors in `conductor.jsonrpc.messages.exception_to_error`, exit codes in `conductor.cli`.

What an error says of this machine (commands, places in files, stderr, texts of exceptions) is for a
local client, and for the log. `withhold_details` is entered around the chain of a remote client.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conductor.chainfile import Diagnostic

__all__ = [
    "ChainFileError",
    "CommandLineError",
    "ComponentError",
    "ComponentExited",
    "ConductorError",
    "ConnectionClosed",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "RequestCancelled",
    "RequestError",
    "StartError",
    "describe",
    "details_are_withheld",
    "withhold_details",
]

_WITHHELD: ContextVar[bool] = ContextVar("details are withheld", default=False)


@contextmanager
def withhold_details() -> Iterator[None]:
    """In the block, and in the tasks started there, errors for the client tell nothing of this
    machine."""
    token = _WITHHELD.set(True)
    try:
        yield
    finally:
        _WITHHELD.reset(token)


def details_are_withheld() -> bool:
    """Whether the client of this task's chain is a remote one."""
    return _WITHHELD.get()


class ConductorError(Exception):
    """Base of every error that the conductor raises on purpose."""

    def private_details(self) -> dict[str, Any]:
        """What the client is not told, for the log."""
        return {}


class ChainFileError(ConductorError):
    """A chain file has mistakes; `diagnostics` holds all of them, in the order of the file."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(str(problem) for problem in diagnostics))
        self.diagnostics = tuple(diagnostics)


class CommandLineError(ConductorError):
    """The command line has a mistake; `usage` is the line that says what it should look like."""

    def __init__(self, reason: str, usage: str | None = None) -> None:
        text = f"acp-conductor was started with wrong arguments: {reason}"
        super().__init__(f"{text}\n{usage}" if usage else text)
        self.reason = reason
        self.usage = usage

    def data(self) -> dict[str, Any]:
        """What the `data` member of a JSON-RPC error says about it."""
        return {"reason": self.reason, "usage": self.usage}


class ComponentError(ConductorError):
    """Something went wrong with one component of the chain."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component
        self.next: str | None = None
        """What happens next, where it is known."""
        self.is_last = False
        """Whether the chain ends with it."""
        self.loses_sessions = False
        """Whether it is an agent that is restarted and cannot take up sessions again."""

    def data(self) -> dict[str, Any]:
        """What the `data` member of a JSON-RPC error says about this failure."""
        return {"component": self.component}

    @property
    def summary(self) -> str:
        """What happened, without anything that is of this machine."""
        return f"component {self.component!r} failed; the server's log says why"

    def public_details(self) -> tuple[str, dict[str, Any]]:
        """Message and data for the client: all of it, or what a remote client may know."""
        if not details_are_withheld():
            return str(self), self.data()
        return self.summary, _without_none(component=self.component, next=self.next)

    def private_details(self) -> dict[str, Any]:
        """What the client is not told, for the log."""
        return self.data() if details_are_withheld() else {}


class StartError(ComponentError):
    """A component could not be started, or did not finish its handshake."""

    def __init__(
        self,
        component: str,
        reason: str,
        *,
        command: Sequence[str] = (),
        status: str | None = None,
        stderr_tail: Sequence[str] = (),
        location: str | None = None,
    ) -> None:
        super().__init__(component, f"component {component!r} did not start: {reason}")
        self.reason = reason
        self.command = tuple(command)
        self.status = status
        self.stderr_tail = tuple(stderr_tail)
        self.location = location

    @property
    def summary(self) -> str:
        return f"component {self.component!r} did not start; the server's log says why"

    def data(self) -> dict[str, Any]:
        return _without_none(
            component=self.component,
            reason=self.reason,
            command=list(self.command) or None,
            exitStatus=self.status,
            stderr=list(self.stderr_tail) or None,
            place=self.location,
            next=self.next,
        )


class ComponentExited(ComponentError):
    """A component ended, or closed its output, while the chain still needed it."""

    def __init__(
        self,
        component: str,
        status: str,
        *,
        stderr_tail: Sequence[str] = (),
        location: str | None = None,
    ) -> None:
        super().__init__(component, f"component {component!r} {status}")
        self.status = status
        self.stderr_tail = tuple(stderr_tail)
        self.location = location

    def data(self) -> dict[str, Any]:
        return _without_none(
            component=self.component,
            exitStatus=self.status,
            stderr=list(self.stderr_tail) or None,
            place=self.location,
            next=self.next,
        )


class ProtocolError(ConductorError):
    """A rule of JSON-RPC or ACP was broken."""


class LocalProtocolError(ProtocolError):
    """We, or the author of a proxy, asked for something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """A peer broke the protocol."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(f"{component}: {message}")
        self.component = component


class ConnectionClosed(ConductorError):
    """The peer is gone; nothing more can be sent to it."""


class RequestError(ConductorError):
    """A JSON-RPC error answer: raise it to give one, catch it when a request of yours got one."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class RequestCancelled(RequestError):
    """The request was cancelled by whoever sent it (code -32800)."""

    def __init__(self, message: str = "Request cancelled", data: Any = None) -> None:
        super().__init__(-32800, message, data)


def describe(exc: BaseException) -> str:
    """An exception in one line, "OSError: no such file"; never raises, whatever its class does."""
    name = type(exc).__name__
    try:
        text = str(exc)
        return f"{name}: {text}" if text else name
    except BaseException as broken:
        return f"{name} (no text: its __str__ raised {type(broken).__name__})"


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
