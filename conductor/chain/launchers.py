"""Programs and connections of components: their commands, and the endpoints that they open.

`run` (with or without `ssh`) starts a process, `connect` and `unix` open a connection. The modules
for connections are imported when the first one is opened. `local_programs` are what can be started
before a client asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from conductor.chainfile.model import ComponentSpec
from conductor.errors import RegistryError
from conductor.files import outside_environment
from conductor.supervision.component_run import Endpoint, Launcher
from conductor.transport.child_process import start_child
from conductor.transport.local_command import isolated_program, local_command
from conductor.transport.spawn import SpawnError

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from conductor.chainfile.model import ChainFile
    from conductor.transport.local_command import LocalCommand

__all__ = ["launcher_for", "local_programs"]


def launcher_for(spec: ComponentSpec) -> Launcher:
    """The launcher of a component. One cookie jar serves all its connections (session affinity)."""
    if spec.connect is not None:
        from http.cookiejar import CookieJar

        cookies = CookieJar()
        return lambda limit: _launch_connection(spec, cookies, limit)
    if spec.unix is not None:
        return lambda limit: _launch_unix(spec, limit)
    return lambda limit: _launch_process(spec)


def _launch_process(spec: ComponentSpec) -> Endpoint:
    assert spec.run is not None
    if spec.ssh is None:
        argv, env, cwd = local_command(spec, os.environ)
        try:
            child = start_child(argv, env=env, cwd=cwd, sandboxed=spec.sandbox is not None)
        except SpawnError as exc:
            if not str(exc).startswith("command not found"):
                raise  # with no descriptor left, for example, nothing can be imported
            from conductor.plugins.loading import ready_made_help

            help = ready_made_help(spec.run[0])
            if help is None:
                raise
            raise SpawnError(f"there is no program {spec.run[0]}; {help}") from exc
    else:
        from conductor.remote.ssh import ssh_argv

        seconds = spec.ping_timeout
        words = ssh_argv(spec.ssh, spec.run, names=spec.env, cwd=spec.cwd, ping_timeout=seconds)
        env = outside_environment(spec.environment(os.environ))
        child = start_child(words, env=env, cwd=None)
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


def local_programs(chain: ChainFile) -> Iterator[LocalCommand]:
    """The command of each component that is a program on this machine, isolated plugins included.

    One that cannot be found is left out: the launcher, or the builder, reports it.
    """
    specs = chain.flat()
    if any(spec.sandbox is not None for spec in specs):
        from conductor.transport.protection import protected

        try:
            specs = tuple(protected(specs))
        except (SpawnError, OSError):
            return
    for spec in specs:
        try:
            if spec.registry is not None:
                from conductor.registry.resolve import resolved

                spec = resolved(spec)
            if spec.use is not None and spec.isolate:
                spec = isolated_program(spec)
            if spec.run is not None and spec.ssh is None:
                yield local_command(spec, os.environ)
        except (SpawnError, RegistryError):
            continue
