"""`acp-conductor trace check FILE`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from conductor.tracing.links import Message
    from conductor.tracing.records import Record

__all__ = ["command"]


@click.command("check")
@click.argument("file", type=click.Path(dir_okay=False), metavar="FILE|PID")
def command(file: str) -> None:
    """Check each message against the official schema: its method, its sender, its payload.

    A message that passes several components is reported once, where it first does not fit. Types
    and required members are checked, in the protocol version of the hop; unknown members, and
    unknown values of an enumeration, are valid. Extension methods (`_…`), MCP messages, and
    payloads that are not in the trace are not checked.

    Exit codes: 0 every message fits, 1 some do not, 2 wrong usage.

    \b
    Examples:
      acp-conductor prompt --trace t.jsonl my-agent "say hello" && acp-conductor trace check t.jsonl
    """
    from conductor.cli.terminal_text import is_coloured, printable, styled
    from conductor.cli.trace.lines import hop_name, message_title
    from conductor.cli.trace.reading import load

    records = load(file)
    problems, unchecked = _misfits(records)
    for message, problem in problems:
        place = f"#{message.n}  {message.ts:.3f}  {hop_name(message)}"
        shown = printable(f"{place}  {message_title(message)}")
        problem = printable(problem)
        print(f"{shown}\n    {styled(problem, 'error') if is_coloured() else problem}")
    checked = sum(1 for each in records if hasattr(each, "method") and hasattr(each, "hop"))
    print(f"{checked - unchecked} records checked, {unchecked} not; {len(problems)} misfits")
    sys.exit(1 if problems else 0)


def _misfits(records: Sequence[Record]) -> tuple[list[tuple[Message, str]], int]:
    """Messages with what does not fit, and the number of those that cannot be checked."""
    from conductor.tracing.links import MessageWays
    from conductor.tracing.records import NotificationRecord, RequestRecord, ResponseRecord

    ways = MessageWays(records)
    versions: dict[tuple[str, int], int] = {}
    found: dict[int, str] = {}
    problems: list[tuple[Message, str]] = []
    unchecked = 0
    for message in ways.messages.values():
        hop = message.chain, message.hop
        sent: Message | None = message
        if isinstance(message, ResponseRecord):
            sent = ways.messages.get(message.request)
        is_mcp = isinstance(sent, RequestRecord | NotificationRecord) and sent.protocol == "mcp"
        match message:
            case RequestRecord(method="initialize", params={"protocolVersion": int(version)}) if (
                not is_mcp
            ):
                versions[hop] = version  # the one of the answer may be lower
            case ResponseRecord(method="initialize", payload={"protocolVersion": int(version)}) if (
                not is_mcp
            ):
                versions[hop] = version
        problem = None if is_mcp else _problem(message, versions.get(hop, 1))
        if problem is None:
            unchecked += 1
        elif problem:
            found[message.n] = problem
            before = ways.before(message)
            if before is None or found.get(before.n) != problem:
                problems.append((message, problem))
    return problems, unchecked


def _problem(message: Message, version: int) -> str | None:
    """What does not fit; empty if all fits, `None` if that cannot be told."""
    from conductor.acp import MCP_METHODS
    from conductor.schema import METHODS_BY_VERSION
    from conductor.schema.convert import dumps, misfit
    from conductor.tracing.records import RequestRecord, ResponseRecord

    version = version if version in METHODS_BY_VERSION else 1
    is_response = isinstance(message, ResponseRecord)
    value = message.content
    is_left_out = message.head is not None or (value is None and message.size > len("null"))
    name = message.method
    if name.startswith("_") or name in MCP_METHODS or is_left_out:
        return None
    method = METHODS_BY_VERSION[version].get(name)
    if method is None:
        return None if is_response else f"not a method of ACP version {version}"
    if isinstance(message, ResponseRecord):
        type_name = "Error" if message.is_error else method.result
    else:
        kind = "request" if isinstance(message, RequestRecord) else "notification"
        sender = "client" if message.toward == "agent" else "agent"
        if method.kind not in (kind, "both"):
            return f"sent as a {kind}; it is a {method.kind}"
        if method.source not in (sender, "both"):
            return f"sent toward the {message.toward}; only the {method.source} sends it"
        type_name = (kind == "notification" and method.notification) or method.params
        value = {} if value is None else value
    return "" if type_name is None else misfit(dumps(value), type_name, version) or ""
