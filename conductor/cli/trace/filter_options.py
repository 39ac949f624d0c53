"""Options of trace commands that choose records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from conductor.cli.units import DURATION

if TYPE_CHECKING:
    from conductor.tracing.record_filter import RecordFilter

__all__ = ["filter_options", "record_filter"]

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--all", "everything", is_flag=True, help="Also handlers, log events and stderr."),
    click.option("--session", metavar="ID", help="Messages of a session."),
    click.option(
        "--method",
        "methods",
        multiple=True,
        metavar="NAME",
        help="Method, or kind of session update; may be repeated.",
    ),
    click.option("--component", metavar="NAME", help="What it sent, received or logged."),
    click.option("--from", "sender", metavar="NAME", help="Messages from this component."),
    click.option("--to", "receiver", metavar="NAME", help="Messages to this component."),
    click.option(
        "--hop",
        type=int,
        metavar="N",
        help="Messages of one hop; 0 is that of the client.",
        hidden=True,
    ),
    click.option(
        "--chain", metavar="NAME", help="In the trace of a server: one chain.", hidden=True
    ),
    click.option(
        "--min-time", type=DURATION, default=0.0, help="Answers and handlers that took as long."
    ),
    click.option("--errors", is_flag=True, help="Errors only."),
    click.option("--grep", "text", metavar="TEXT", help="Messages with a text in them."),
)


def filter_options(command: F) -> F:
    """Add the options; the command gets them as `**criteria`, for `record_filter`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def record_filter(criteria: dict[str, Any]) -> RecordFilter:
    """The filter of these options."""
    from conductor.tracing.record_filter import RecordFilter

    return RecordFilter(**criteria)
