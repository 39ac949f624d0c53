"""The exception tree. An error names the component, the message, and what to try.

`RequestError` is raised to answer a request with an error, and raised when a request was answered
with one: a handler that does not catch it passes the error on unchanged. Exceptions become JSON-RPC
errors in `conductor.jsonrpc.messages.exception_to_error`, exit codes in `conductor.cli`.

Details of this machine (commands, file names, stderr, exception texts) go to local clients and to
the log. `withhold_details` is entered around the chain of a remote client.
"""

from __future__ import annotations

import os
import re
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from conductor.error_codes import REQUEST_CANCELLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


__all__ = [
    "ChainFileError",
    "CommandLineError",
    "ComponentError",
    "ComponentExited",
    "ConductorError",
    "ConnectionClosed",
    "LocalProtocolError",
    "ProtocolError",
    "RegistryError",
    "RemoteProtocolError",
    "RequestCancelled",
    "RequestError",
    "StartError",
    "describe",
    "details_are_withheld",
    "line_in",
    "withhold_details",
]

_ASYNCIO: Final = re.compile("no (running|current) event loop|unrecognized yield message")
"""Errors of asyncio without its loop, and of trio about an asyncio future."""
_ON_TRIO: Final = "plugins run on trio: write `trio.sleep(…)`, not `asyncio.sleep(…)`"
_WITHHELD: ContextVar[bool] = ContextVar("details are withheld", default=False)


@contextmanager
def withhold_details() -> Iterator[None]:
    """Leave details of this machine out of errors for the client, in the block and in the tasks
    started there."""
    token = _WITHHELD.set(True)
    try:
        yield
    finally:
        _WITHHELD.reset(token)


def details_are_withheld() -> bool:
    """Whether the client of this task's chain is remote: texts for it have no paths, commands or
    stderr of this machine, which are logged instead."""
    return _WITHHELD.get()


class ConductorError(Exception):
    """Base of all errors that the conductor defines."""

    def public_details(self) -> tuple[str, Any]:
        """`message` and `data` of the JSON-RPC error; without details for a remote client."""
        name = type(self).__name__
        return "Internal error" if details_are_withheld() else str(self) or name, name

    def private_details(self) -> dict[str, Any]:
        """The details that the client does not get, as fields for the log."""
        return {}


class ChainFileError(ConductorError):
    """Invalid chain file. `diagnostics`: every `conductor.chainfile.Diagnostic`, in file order."""

    def __init__(self, diagnostics: Sequence[Any]) -> None:
        super().__init__("\n".join(str(problem) for problem in diagnostics))
        self.diagnostics: tuple[Any, ...] = tuple(diagnostics)

    def public_details(self) -> tuple[str, Any]:
        if details_are_withheld():
            return super().public_details()
        problems = [str(problem) for problem in self.diagnostics]
        heading = "the chain cannot start because of its chain file:"
        return "\n\n".join([heading, *problems]), {"problems": problems}


class RegistryError(ConductorError):
    """A component of the registry cannot be found, pinned or installed. `help`: what to try."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message if help is None else f"{message}\nhelp: {help}")
        self.message = message
        self.help = help


class CommandLineError(ConductorError):
    """Wrong command-line arguments. `usage` is the usage line of the command."""

    def __init__(self, reason: str, usage: str | None = None) -> None:
        text = f"acp-conductor was started with wrong arguments: {reason}"
        super().__init__(f"{text}\n{usage}" if usage else text)
        self.reason = reason
        self.usage = usage

    def data(self) -> dict[str, Any]:
        """The `data` member of the JSON-RPC error."""
        return {"reason": self.reason, "usage": self.usage}

    def public_details(self) -> tuple[str, Any]:
        return str(self), self.data()


class ComponentError(ConductorError):
    """Failure of one component of the chain."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component
        self.next: str | None = None
        """The supervisor's next step, as text; `None` if not known."""
        self.is_last = False
        """Whether the chain ends because of this failure."""
        self.loses_sessions = False
        """Whether an agent restarts that can neither load nor resume its sessions."""

    def data(self) -> dict[str, Any]:
        """The `data` member of the JSON-RPC error, with all details."""
        return {"component": self.component}

    @property
    def summary(self) -> str:
        """The failure in one sentence, without details of this machine."""
        return f"component {self.component!r} failed; the server's log says why"

    def public_details(self) -> tuple[str, Any]:
        if not details_are_withheld():
            return str(self), self.data()
        return self.summary, _without_none(component=self.component, next=self.next)

    def private_details(self) -> dict[str, Any]:
        return self.data() if details_are_withheld() else {}


class StartError(ComponentError):
    """A component did not start, or did not finish its handshake."""

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
        self.command: tuple[str, ...] = tuple(command)
        self.status = status
        self.stderr_tail: tuple[str, ...] = tuple(stderr_tail)
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
    """A component exited or closed its output while the chain was running."""

    def __init__(
        self,
        component: str,
        status: str,
        *,
        stderr_tail: Sequence[str] = (),
        last_line: str = "",
        location: str | None = None,
    ) -> None:
        super().__init__(component, f"component {component!r} {status}")
        self.status = status
        self.stderr_tail: tuple[str, ...] = tuple(stderr_tail)
        self._last_line = last_line
        self.location = location

    @property
    def last_line(self) -> str:
        """The line of its stderr that says why, for the user; empty for a remote client."""
        return "" if details_are_withheld() else self._last_line

    def data(self) -> dict[str, Any]:
        return _without_none(
            component=self.component,
            exitStatus=self.status,
            stderr=list(self.stderr_tail) or None,
            place=self.location,
            next=self.next,
        )

    def public_details(self) -> tuple[str, Any]:
        message, data = super().public_details()
        if self.last_line:
            message += f": {self.last_line}"
        # Some clients, such as Toad, show `details` and not the message.
        return message, {**data, "details": message}


class ProtocolError(ConductorError):
    """Violation of JSON-RPC or ACP."""


class LocalProtocolError(ProtocolError):
    """The conductor or a proxy tried to send a message that the protocol does not allow."""

    def __init__(self, message: str, function: Callable[..., Any] | None = None) -> None:
        super().__init__(message)
        self.function = function
        """The author's function that has returned it, which is on the stack no more."""


class RemoteProtocolError(ProtocolError):
    """A peer violated the protocol."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(f"{component}: {message}")
        self.component = component


class ConnectionClosed(ConductorError):
    """The peer has closed its reading side; nothing more can be sent."""


class RequestError(ConductorError):
    """A JSON-RPC error response: raise it to answer a request; raised by a request that got one."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class RequestCancelled(RequestError):
    """The request was cancelled by its sender (code -32800)."""

    def __init__(self, message: str = "Request cancelled", data: Any = None) -> None:
        super().__init__(REQUEST_CANCELLED, message, data)


def describe(exc: BaseException) -> str:
    """An exception as text, "OSError: no such file". Never raises, even if `__str__` does."""
    name = type(exc).__name__
    try:
        text = str(exc)
        if type(exc) in (RuntimeError, TypeError) and (found := _ASYNCIO.search(text)):
            text = f"{found[0]} ({_ON_TRIO})"
        return f"{name}: {text}" if text else name
    except BaseException as broken:
        return f"{name} (no text: its __str__ raised {type(broken).__name__})"


def line_in(file: str | None, exc: BaseException) -> str:
    """The line of a plugin's file that raised an exception: " (notes.py, line 7)", or nothing."""
    if file is None or isinstance(exc, SyntaxError):  # its text has the line
        return ""
    real = os.path.realpath(file)
    lines = [
        line
        for frame, line in traceback.walk_tb(exc.__traceback__)
        if os.path.realpath(frame.f_code.co_filename) == real
    ]
    return f" ({os.path.basename(file)}, line {lines[-1]})" if lines else ""


def exception_location(exc: BaseException) -> dict[str, str]:
    """Log fields for an exception whose text, or that of its cause, may contain a bearer token.

    `error`: its type; `at`: the innermost calls as `file:line function`. hypercorn's error for an
    invalid HTTP/2 preface contains the received bytes.
    """
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    frames = traceback.extract_tb(exc.__traceback__)[-5:]
    calls = [f"{'/'.join(f.filename.split(os.sep)[-2:])}:{f.lineno} {f.name}" for f in frames]
    return {"error": type(exc).__name__, "at": " < ".join(reversed(calls))}


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
