"""The option `--client`: what an editor sends as `initialize`, or what a file says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from conductor.adapters.known_clients import EDITOR_REQUESTS
from conductor.files import open_as_given

__all__ = ["TriedClient", "client_option"]

F = TypeVar("F", bound=Callable[..., Any])


class TriedClient(NamedTuple):
    """A client that a chain is looked at for."""

    name: str
    """The editor, or the file."""
    params: Mapping[str, Any]
    """The params of its `initialize`."""


class _ClientType(click.ParamType[TriedClient]):
    name = "client"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TriedClient:
        if (params := EDITOR_REQUESTS.get(str(value))) is not None:
            return TriedClient(str(value), params)
        known = ", ".join(EDITOR_REQUESTS)
        if os.sep not in value and not value.endswith(".json"):
            message = f"{value} is none of {known}; a file is written ./{value}"
            self.fail(message + _hint(str(value).lower()), param, ctx)
        try:
            with open_as_given(value) as file:
                return TriedClient(str(value), _params(file.read()))
        except OSError as exc:
            self.fail(f"{value} cannot be read: {exc.strerror}", param, ctx)
        except ValueError:
            self.fail(
                f"{value} has no `initialize` request, nor the params of one, as JSON", param, ctx
            )

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in EDITOR_REQUESTS if name.startswith(incomplete)]


def _hint(name: str) -> str:
    """Hint for an editor that is not in the table; empty for other names."""
    from conductor.cli.install.editors import EDITORS, OTHER_NAMES

    meant = OTHER_NAMES.get(name, (name,))
    if known := [each for each in meant if each in EDITOR_REQUESTS]:
        return f". Did you mean {' or '.join(known)}?"
    if any(each in EDITORS for each in meant):
        return f". What {meant[0]} announces is not known here: save its `initialize` in a file"
    return ""


def _params(text: bytes) -> Mapping[str, Any]:
    import msgspec

    from conductor.json_values import decode_value

    try:
        written = decode_value(text)
    except msgspec.DecodeError:
        raise ValueError from None
    if isinstance(written, dict) and written.get("method") == "initialize":
        written = written.get("params")
    if not isinstance(written, dict) or type(written.get("protocolVersion")) is not int:
        raise ValueError
    return written


def client_option(command: F) -> F:
    """Add `--client`."""
    names = ", ".join(EDITOR_REQUESTS)
    return click.option(
        "--client",
        type=_ClientType(),
        metavar="NAME|FILE",
        help=f"Which adapters a client gets: {names}, or a file with its `initialize` as JSON.",
    )(command)
