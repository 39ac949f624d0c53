"""`acp-conductor connect URL`"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from conductor.files import open_as_given
from conductor.secrets.masking import take_secret

if TYPE_CHECKING:
    from conductor.chainfile.model import ComponentSpec, Tls

__all__ = ["command"]

_TOKEN: Final = "ACP_CONDUCTOR_TOKEN"
_SCHEMES: Final = ("ws", "wss", "http", "https")
_FILE: Final = click.Path(exists=True, dir_okay=False)


@click.command("connect")
@click.argument("url", metavar="URL")
@click.option("--token-file", type=_FILE, help="A file with the bearer token.")
@click.option(
    "--header-file", type=_FILE, help="A file with more headers, one `Name: value` a line."
)
@click.option("--ca", type=_FILE, help="PEM: the authority that signed the server's certificate.")
@click.option(
    "--cert", type=_FILE, help="PEM: the client certificate, for servers that require one."
)
@click.option("--key", type=_FILE, help="PEM: the key of --cert, if it is in a separate file.")
@click.option("--server-name", help="The name on the server's certificate, if not that in URL.")
@click.option(
    "--ping-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds after which a server that does not answer counts as gone.",
)
def command(
    url: str,
    token_file: str | None,
    header_file: str | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
    server_name: str | None,
    ping_timeout: float,
) -> None:
    """Serve an agent on another machine to the editor that started this, on stdin and stdout.

    URL is ws://, wss://, http:// or https://, or unix:PATH for a socket on this machine. Tokens and
    headers are read from files, or the token from the environment variable ACP_CONDUCTOR_TOKEN:
    arguments of a program are visible to all users.

    \b
    Examples:
      acp-conductor connect ws://127.0.0.1:8765
      acp-conductor connect wss://agents.example.org/acp --token-file ~/.config/acp-token
    """
    from conductor.chainfile.model import Tls

    if key is not None and cert is None:
        raise click.UsageError("--key needs --cert.")
    tls = Tls(ca, cert, key, server_name)
    if url.startswith("unix:"):
        if token_file or header_file or tls != Tls():
            raise click.UsageError("A Unix socket has neither headers nor TLS.")
        component = _socket(url.removeprefix("unix:"))
    else:
        headers = _headers(token_file, header_file)
        component = _connection(url, headers, None if tls == Tls() else tls, ping_timeout)
    from conductor.cli.chain_run import ChainRun

    ChainRun.of_components((component,)).serve()


def _socket(path: str) -> ComponentSpec:
    from conductor.chainfile.model import ComponentSpec

    if not path:
        raise click.BadParameter("expected a path after `unix:`", param_hint="URL")
    return ComponentSpec(name="agent", unix=os.path.abspath(path))


def _connection(
    url: str, headers: dict[str, str], tls: Tls | None, ping_timeout: float
) -> ComponentSpec:
    from conductor.chainfile.model import ComponentSpec

    try:
        parts = urlsplit(url)
        usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter("expected a URL such as wss://example.org/acp", param_hint="URL")
    if parts.password is not None:
        raise click.UsageError(
            "all users of this machine can read a password on the command line: --header-file "
            "may hold `Authorization: Basic …`"
        )
    if tls is not None and parts.scheme in ("ws", "http"):
        raise click.UsageError(f"{parts.scheme}:// is not encrypted: write {parts.scheme}s://")
    name = parts.hostname or "agent"
    return ComponentSpec(
        name=name, connect=url, headers=headers, tls=tls, ping_timeout=ping_timeout
    )


def _headers(token_file: str | None, header_file: str | None) -> dict[str, str]:
    """HTTP headers from the files, with the token of the file or the environment."""
    headers: dict[str, str] = {}
    if header_file is not None:
        for number, line in enumerate(_lines(header_file), 1):
            name, colon, value = line.partition(":")
            if not colon or not name.strip().isascii() or not value.isascii():
                hint = f"line {number} of {header_file} is not of the form `Name: value`"
                raise click.BadParameter(hint, param_hint="--header-file")
            headers[name.strip()] = value.strip()
    if token_file is not None:
        token = next(iter(_lines(token_file)), "")
        if not token:
            raise click.BadParameter(f"{token_file} is empty", param_hint="--token-file")
    else:
        token = take_secret(_TOKEN) or ""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _lines(path: str) -> list[str]:
    try:
        with open_as_given(path) as file:
            return [line.strip() for line in file.read().decode().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"{path} cannot be read: {exc}") from exc
