"""`acp-conductor serve FILE --listen ADDRESS`"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from conductor.cli.arguments import CHAIN_PATH
from conductor.cli.trace_options import open_trace, trace_options
from conductor.files import open_as_given

if TYPE_CHECKING:
    from conductor.server.listen.address import TcpAddress
    from conductor.server.run import ServerSettings

__all__ = ["command"]

_SECONDS = click.FloatRange(min=0, min_open=True)
_COUNT = click.IntRange(min=1)
_limit_option = partial(click.option, show_default=True, hidden=True)
"""Limits and times: `docs/remote.md` has them, `--help` does not."""


@click.command("serve")
@click.argument("file", type=CHAIN_PATH)
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="HOST:PORT, [IPv6]:PORT or unix:PATH; port 0 takes a free one. May be repeated.  "
    "[default: 127.0.0.1:8765]",
)
@click.option(
    "--tls-cert", type=click.Path(exists=True, dir_okay=False), help="PEM; with its chain."
)
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="PEM.")
@click.option(
    "--client-ca",
    type=click.Path(exists=True, dir_okay=False),
    help="Clients must show a certificate that this CA has signed.",
)
@click.option(
    "--token-file",
    type=click.Path(),
    help="Bearer tokens of allowed clients, one per line: `name:token`, a token alone, or "
    "`name:sha256:HEX`, its digest. The environment variable ACP_CONDUCTOR_TOKENS holds the same.",
)
@click.option(
    "--host", "hosts", multiple=True, help="A host name that clients may use for this server."
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    help="An origin of web pages that may connect, as in https://app.example.org.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond this machine, and for its other users, without protection.",
)
@_limit_option("--max-clients", type=_COUNT, default=2000, help="In total.")
@_limit_option(
    "--max-clients-each",
    type=_COUNT,
    default=200,
    help="Of one address.",
)
@_limit_option(
    "--max-message-bytes",
    type=_COUNT,
    default=16 * 1024 * 1024,
    help="The longest message of a client. `limits: max_message_bytes` of FILE holds as well.",
)
@_limit_option(
    "--max-streams",
    type=_COUNT,
    default=256,
    help="Session streams of one client over HTTP.",
)
@_limit_option(
    "--ping-interval",
    type=_SECONDS,
    default=20.0,
    help="Seconds between pings on a WebSocket.",
)
@_limit_option(
    "--ping-timeout",
    type=_SECONDS,
    default=20.0,
    help="Seconds for the answer to a ping.",
)
@_limit_option(
    "--keep",
    type=_SECONDS,
    default=60.0,
    help="Seconds for which the chain of a disconnected client is kept.",
)
@_limit_option(
    "--idle-timeout",
    type=_SECONDS,
    default=86400.0,
    help="Seconds without a message after which a client is ended.",
)
@_limit_option(
    "--drain-timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    help="Seconds for running prompt turns to end after SIGTERM.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics, and /healthz; HOST is 127.0.0.1 by "
    "default.",
)
@trace_options
def command(file: str, **options: Any) -> None:
    """Start the chain of FILE for each remote client.

    Clients connect by WebSocket or Streamable HTTP, at /acp, or with JSON lines on a Unix socket.
    /health and /ready are for load balancers. Limits and times have options, too: docs/remote.md.

    \b
    Examples:
      acp-conductor serve review.yaml
      acp-conductor serve review.yaml --listen unix:/run/user/1000/acp.sock
      acp-conductor serve review.yaml --listen 0.0.0.0:8765 --tls-cert cert.pem --tls-key key.pem \\
          --token-file tokens
    """
    from conductor.cli.chain_run import ChainRun
    from conductor.cli.load import check_options, load_chain
    from conductor.server.run import CurrentChain, serve

    run = ChainRun.of_file(file, load=partial(load_chain, file))
    chain = run.chain_or_exit()
    check_options(chain)
    settings = _settings(chain.limits.max_message_bytes, **options)
    serve(CurrentChain(run.files()), settings, open_trace())


def _settings(message_bytes: int, **options: Any) -> ServerSettings:
    import os

    from conductor.network.tcp import server_context
    from conductor.server.access import AccessPolicy, host_name_of, read_tokens
    from conductor.server.limits import ServerLimits, ServerTimeouts
    from conductor.server.listen.address import TcpAddress, parse_address
    from conductor.server.run import ServerSettings

    try:
        listen = tuple(map(parse_address, options["listen"] or ["127.0.0.1:8765"]))
        tokens = read_tokens(_token_lines(options["token_file"]))
    except ValueError as exc:
        raise click.UsageError(str(exc)) from None
    cert, key, client_ca = options["tls_cert"], options["tls_key"], options["client_ca"]
    if (cert is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other")
    if client_ca is not None and cert is None:
        raise click.UsageError("--client-ca needs --tls-cert and --tls-key")
    try:
        tls = None if cert is None else server_context(cert, key, client_ca)
    except OSError as exc:  # ssl.SSLError is one
        raise click.UsageError(f"--tls-cert, --tls-key or --client-ca: {exc}") from None
    is_open = options["insecure"] or bool(tokens) or client_ca is not None
    access = AccessPolicy(
        tokens=tokens,
        certificates=client_ca is not None,
        hosts=frozenset(map(host_name_of, options["hosts"])),
        origins=frozenset(origin.rstrip("/").lower() for origin in options["origins"]),
        user=None if is_open else os.geteuid(),
    )
    exposed = [a for a in listen if isinstance(a, TcpAddress) and not a.is_loopback]
    missing = [
        *(["TLS (--tls-cert and --tls-key)"] if tls is None else []),
        *(["authentication (--token-file or --client-ca)"] if not access.authenticates else []),
    ]
    if exposed and missing and not options["insecure"]:
        raise click.UsageError(
            f"{exposed[0].host} can be reached from other machines, which needs "
            f"{' and '.join(missing)}; --insecure listens nevertheless"
        )
    limits = ServerLimits(
        clients=options["max_clients"],
        clients_each=options["max_clients_each"],
        sockets=options["max_clients"] * 4,
        sockets_each=options["max_clients_each"] * 4,
        streams=options["max_streams"],
        message_bytes=min(message_bytes, options["max_message_bytes"]),
    )
    timeouts = ServerTimeouts(
        ping_interval=options["ping_interval"],
        ping_timeout=options["ping_timeout"],
        keep=options["keep"],
        idle=options["idle_timeout"],
        drain=options["drain_timeout"],
    )
    metrics = _metrics_address(options["metrics"])
    return ServerSettings(listen, access, tls, limits, timeouts, metrics)


def _metrics_address(text: str | None) -> TcpAddress | None:
    import importlib.util

    from conductor.server.listen.address import TcpAddress, parse_address

    if text is None:
        return None
    if importlib.util.find_spec("prometheus_client") is None:
        raise click.UsageError(
            "--metrics needs prometheus-client: pip install 'acp-conductor[metrics]'"
        )
    try:
        address = parse_address(text if ":" in text else f"127.0.0.1:{text}")
    except ValueError as exc:
        raise click.UsageError(f"--metrics: {exc}") from None
    if not isinstance(address, TcpAddress):
        raise click.UsageError("--metrics: expected [HOST:]PORT")
    return address


_TOKENS = "ACP_CONDUCTOR_TOKENS"


def _token_lines(path: str | None) -> list[str]:
    """The tokens of the environment variable and of the file.

    Raises `ValueError` with a message for the user.
    """
    import os
    import stat

    from conductor.secrets.masking import take_secret

    lines = (take_secret(_TOKENS) or "").splitlines()
    if path is None:
        return lines
    try:
        with open_as_given(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise ValueError(f"{path} can be read by others; `chmod 600 {path}`")
            found = file.read().decode().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(f"--token-file {path}: {getattr(exc, 'strerror', None) or exc}") from None
    if not any(line.strip() and not line.strip().startswith("#") for line in found):
        raise ValueError(f"--token-file {path}: it contains no token")
    return [*lines, *found]
