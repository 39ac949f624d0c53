"""The option `--client`: what an editor sends as `initialize`, or what a file says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from conductor.adapters.known_clients import EDITOR_REQUESTS
from conductor.cli.arguments import SimilarChoice
from conductor.cli.install.editors import OTHER_NAMES
from conductor.files import open_as_given

__all__ = ["TriedClient", "client_option"]

F = TypeVar("F", bound=Callable[..., Any])


class TriedClient(NamedTuple):
    """A client that a chain is looked at for."""

    name: str
    """The editor, or the file."""
    params: Mapping[str, Any]
    """The params of its `initialize`."""


class _ClientType(SimilarChoice):
    name = "client"

    def __init__(self) -> None:
        known = {
            name: tuple(each for each in meant if each in EDITOR_REQUESTS)
            for name, meant in OTHER_NAMES.items()
        }
        super().__init__(EDITOR_REQUESTS, known)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.sep not in value and not value.endswith(".json"):
            name = super().convert(value, param, ctx)
            return TriedClient(name, EDITOR_REQUESTS[name])
        try:
            with open_as_given(value) as file:
                return TriedClient(str(value), _params(file.read()))
        except OSError as exc:
            self.fail(f"{value} cannot be read: {exc.strerror}", param, ctx)
        except ValueError:
            self.fail(
                f"{value} has no `initialize` request, nor the params of one, as JSON", param, ctx
            )

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return f"{message} A file with the `initialize` of a client is written ./{value}"


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
