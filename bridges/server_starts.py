"""Whether the servers of a session start, as the connections of the agent's MCP client show.

Agents start the MCP servers of a session when it is set up, and some answer only afterwards: a
server that hangs would hang the session, and one that fails would fail it. So the bridge refuses
the connection to a server that has not answered within `start_timeout`, sets a refused session up
again without the servers that have failed, and tells the user which are left out. With
`mcp: {required: true}` the set-up fails instead. A server that takes longer than `SLOW` seconds is
named in the log, and to the user once the session is set up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from bridges.declarations import Declaration
from bridges.mcp_connection import McpConnection
from conductor.bridge_api import INTERNAL_ERROR, Severity, encode_error, error_to_exception
from conductor.log import get_logger
from conductor.proxy import RequestError

__all__ = ["SLOW", "ServerStarts", "required_error"]

SLOW: Final = 2.0
"""Seconds after which the start of a server is slow."""

_NO_ANSWER: Final = "The MCP server did not answer"

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class ServerStarts:
    """The starts of the servers of one agent.

    `notify` is called with the title and detail of a notice, once for each server that is slow and
    once for each that did not start, but not before the session is set up.
    """

    notify: Callable[[Declaration, str, str | None, Severity], None]
    timeout: float = 30.0

    def watch(
        self, declaration: Declaration, mcp_connection: McpConnection, nursery: trio.Nursery
    ) -> None:
        """Find out whether the server answers on this connection of the agent, which ends with the
        nursery."""
        if not declaration.start.is_set():
            declaration.was_asked = True
            mcp_connection.on_start = lambda error: self._settled(declaration, error)
            nursery.start_soon(self._limit, declaration, mcp_connection)

    async def _limit(self, declaration: Declaration, mcp_connection: McpConnection) -> None:
        """Refuse the connection if the server does not answer in time."""
        await trio.sleep(min(SLOW, self.timeout))
        if self.timeout > SLOW:
            self._find_slow(declaration)
            await trio.sleep(self.timeout - SLOW)
        if mcp_connection.on_start is not None and not mcp_connection.closed:
            reason = f"{_NO_ANSWER} within {self.timeout:g} s (start_timeout of `mcp` in the "
            reason += "chain file); `acp-conductor doctor FILE` tries its servers"
            mcp_connection.refuse(encode_error(INTERNAL_ERROR, reason))

    def set_up(self, declarations: list[Declaration]) -> None:
        """The session is set up: report the servers that did not start, and later those that do
        not."""
        for declaration in declarations:
            declaration.is_set_up = True
            if declaration.problem is not None:
                self._tell_left_out(declaration)
            elif declaration.is_slow and not declaration.start.is_set():
                self._tell_slow(declaration)

    async def wait_all(self, declarations: list[Declaration]) -> None:
        """Wait until the servers have started. Raises a `RequestError` about those that fail."""
        with trio.move_on_after(self.timeout):
            for declaration in declarations:
                await declaration.start.wait()
        for declaration in declarations:
            if not declaration.start.is_set():
                what = _NO_ANSWER if declaration.was_asked else "the agent did not start it"
                declaration.problem = f"{what} within {self.timeout:g} s"
        failed = [declaration for declaration in declarations if declaration.problem is not None]
        if failed:
            raise required_error(failed)

    def _settled(self, declaration: Declaration, error: bytes | None) -> None:
        if declaration.start.is_set():
            return
        declaration.start.set()
        if error is None:
            return
        declaration.problem = _words(error)
        log.warning(
            "MCP server did not start", server=declaration.server.name, reason=declaration.problem
        )
        if declaration.is_set_up:
            self._tell_left_out(declaration)

    def _find_slow(self, declaration: Declaration) -> None:
        if declaration.is_slow or declaration.start.is_set():
            return
        declaration.is_slow = True
        log.warning("MCP server slow to start", server=declaration.server.name)
        if declaration.is_set_up:
            self._tell_slow(declaration)

    def _tell_slow(self, declaration: Declaration) -> None:
        title = f"waiting for MCP server {declaration.server.name} to start"
        self.notify(declaration, title, f"for at most {self.timeout:g} s", "info")

    def _tell_left_out(self, declaration: Declaration) -> None:
        name = declaration.server.name
        title = f"MCP server {name} did not start: the session goes on without it"
        self.notify(declaration, title, declaration.problem, "warning")


def required_error(failed: Sequence[Declaration]) -> RequestError:
    """The answer to the set-up of a session that requires these servers."""
    text = "; ".join(
        f"MCP server {each.server.name!r} did not start: {each.problem}" for each in failed
    )
    return RequestError(INTERNAL_ERROR, text, {"mcpServer": failed[0].server.name})


def _words(error: bytes) -> str:
    found = error_to_exception(error)
    text = found.message
    if isinstance(found.data, str) and found.data:
        text += f": {found.data}"
    return text
