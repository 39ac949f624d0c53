"""The handling of `initialize` by a plugin: its `start_timeout`, what the plugin learns from it,
and the handlers that run in the negotiated version of the protocol, its hook after a restart.

The time in which the handler waits for its successor does not count: the successor has a
`start_timeout` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import attrs
import trio

from conductor.errors import StartError
from conductor.jsonrpc.messages import exception_to_error
from conductor.log import Logger
from conductor.plugins.lane import LaneResponse
from conductor.proxy.base import Plugin
from conductor.proxy.conversion import decode_params
from conductor.proxy.handlers import version_fit
from conductor.proxy.middleware import Handler
from conductor.proxy.sessions import chain_info
from conductor.routing.proxy_meta import restarted_sessions

__all__ = ["Initialization"]


@attrs.frozen(eq=False, repr=False)
class Initialization:
    """One `initialize` of a plugin, from its start. `start_timeout` is in seconds."""

    name: str
    plugin: Plugin
    start_timeout: float
    use_handlers: Callable[[Sequence[Handler]], None]
    """Takes the handlers that run from now on."""
    log: Logger
    scope: trio.CancelScope
    """Of the handler."""

    def __attrs_post_init__(self) -> None:
        self.resume()

    def resume(self) -> None:
        """Start the clock."""
        self.scope.deadline = trio.current_time() + self.start_timeout

    def pause(self) -> None:
        """Stop the clock while the handler waits for a response."""
        self.scope.deadline = float("inf")

    def timed_out(self) -> StartError:
        """The error of a handler that took too long."""
        seconds = f"{self.start_timeout:g} s (start_timeout)"
        return StartError(self.name, f"it did not answer `initialize` within {seconds}")

    def answered(self, params: bytes | None, result: bytes | None) -> None:
        """Keep members of the request and of its answer, for `Plugin.protocol_version` and
        others."""
        info = chain_info(self.plugin)
        with suppress(ValueError):  # the peer answers it
            info.asked(decode_params(params, dict))
            info.answered(decode_params(result, dict))

    async def call_restart_hook(self, params: bytes | None) -> None:
        """Call `on_restart` at the end of the handshake, if the params have a restart marker."""
        sessions, hook = restarted_sessions(params), getattr(self.plugin, "on_restart", None)
        if sessions is not None and hook is not None:
            await hook(sessions)

    def fit_version(self, answer: LaneResponse | None) -> tuple[bytes | None, bytes | None] | None:
        """Leave out handlers of a proxy for another version of the protocol than the negotiated
        one.

        `answer` is the response to the forwarded request. Returns raw result and error for the
        client if they are not those of the handler: an error of a required proxy, and the unchanged
        response if the proxy is bypassed.
        """
        cls, version = type(self.plugin), self.plugin.protocol_version
        fit = version_fit(cls, version)
        if fit.handlers is self.plugin._acp_handlers:
            return None
        if self.plugin._acp_runtime.required and not fit.is_complete:
            return None, exception_to_error(StartError(self.name, fit.problem(cls, version)))
        if fit.is_bypassed:
            self.log.warning(
                "proxy is bypassed: it is not for this version of the protocol",
                plugin=cls.__name__,
                versions=sorted(cls.versions or ()),
                protocol_version=version,
            )
        for handler in fit.left_out:
            self.log.warning(
                "handler is left out: its type is of another version of the protocol",
                plugin=cls.__name__,
                handler=handler.location,
                method=handler.method,
                handler_version=handler.version,
                protocol_version=version,
            )
        self.use_handlers(fit.handlers)
        return (answer.result, answer.error) if fit.is_bypassed and answer is not None else None
