"""What stands behind the link of a component: a process here, or a connection to another machine;
or a plugin that is to be started again.

Starting again, restoring sessions, budgets and errors are the same for both, because both look like
this. Nothing that speaks with other machines is imported for a process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from conductor.chainfile.model import ComponentSpec
from conductor.log import get_logger
from conductor.transport.base import Transport
from conductor.transport.child_process import SpawnError, spawn

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

__all__ = ["Endpoint", "Launcher", "SpawnError", "is_remote", "launcher_for"]


class Endpoint(Protocol):
    """One process, or one connection. `transport` reads what it says and writes what it is told."""

    @property
    def transport(self) -> Transport: ...

    @property
    def location(self) -> str:
        """Where it is, for people."""

    @property
    def status(self) -> str | None:
        """How it ended, for people, as one says it of a component; None as long as it lives."""

    @property
    def reached(self) -> bool:
        """Whether there was anybody to speak to."""

    async def wait(self) -> str:
        """Return its status when it has ended. A connection lives in here."""

    async def read_stderr(self) -> bytes:
        """The next bytes of its stderr; `b""` at the end."""

    def stderr_waiting(self) -> int:
        """Bytes of its stderr that are written and not read yet."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of a process; SIGTERM and SIGKILL cut a connection."""

    def close(self) -> None:
        """Give up its transport."""


Launcher = Callable[[int], Endpoint]
"""Opens a endpoint; the argument is the longest message, in bytes. Raises `SpawnError`."""


def is_remote(spec: ComponentSpec) -> bool:
    """Whether a component runs, as far as one can know, on another machine."""
    return spec.connect is not None or spec.ssh is not None


def launcher_for(spec: ComponentSpec) -> Launcher:
    """What opens the endpoint of a component, time and again; cookies are kept meanwhile."""
    if spec.connect is not None:
        from http.cookiejar import CookieJar

        cookies = CookieJar()
        return lambda limit: _launch_connection(spec, cookies, limit)
    if spec.unix is not None:
        return lambda limit: _launch_unix(spec, limit)
    if spec.use is not None:
        return lambda limit: _launch_plugin(spec, limit)
    return lambda limit: _launch_process(spec)


def _launch_process(spec: ComponentSpec) -> Endpoint:
    assert spec.run is not None
    if spec.ssh is None:
        env = spec.environment(os.environ)
        child = spawn(spec.run, env=env, cwd=spec.cwd)
    else:
        from conductor.remote.ssh import ssh_argv

        seconds = spec.ping_timeout
        argv = ssh_argv(spec.ssh, spec.run, names=spec.env, cwd=spec.cwd, ping_timeout=seconds)
        child = spawn(argv, env={**os.environ, **spec.env}, cwd=None)
    log = get_logger(component=spec.name)
    log.debug("component started", pid=child.pid, command=spec.run[0])
    return child


def _launch_connection(spec: ComponentSpec, cookies: CookieJar, limit: int) -> Endpoint:
    from conductor.network.address import RemoteAddress
    from conductor.remote.transport import RemoteTransport

    assert spec.connect is not None
    address = RemoteAddress.from_url(spec.connect, spec.headers, spec.tls)
    seconds = spec.ping_timeout
    if address.is_websocket:
        from conductor.remote.websocket import run_transport
    else:
        from conductor.remote.streamable_http import run_transport
    return RemoteTransport(
        address.display_url,
        limit,
        lambda transport: run_transport(transport, address, cookies, seconds),
    )


def _launch_unix(spec: ComponentSpec, limit: int) -> Endpoint:
    from conductor.remote import unix
    from conductor.remote.transport import RemoteTransport

    assert spec.unix is not None
    return RemoteTransport(spec.unix, limit, unix.run_transport)


def _launch_plugin(spec: ComponentSpec, limit: int) -> Endpoint:
    from conductor.chain.plugin_endpoint import plugin_endpoint

    return plugin_endpoint(spec, limit)
