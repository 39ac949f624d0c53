"""`acp-conductor trace replay FILE --as agent|client`, `… --through CHAIN`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import click

from conductor.cli.trace_options import open_trace, trace_options

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile
    from conductor.testing.recording import Recording
    from conductor.tracing.conversation import End

__all__ = ["command"]

_TIMEOUT: Final = {"client": 60.0, "through": 10.0}
"""Seconds; a real agent thinks for longer than a recorded one."""


@click.command("replay")
@click.argument("file", type=click.Path(), metavar="FILE")
@click.argument("agent", nargs=-1, metavar="[-- CHAIN.yaml | [PROXY]... AGENT]")
@click.option("--as", "side", type=click.Choice(["agent", "client"]), help="The side to play.")
@click.option(
    "--through",
    type=click.Path(),
    metavar="CHAIN.yaml",
    help="Play both sides, with this chain between them; its `agent:` is not used.",
)
@click.option("--chain", metavar="NAME", help="The chain to replay, in the trace of a server.")
@click.option("--ignore", multiple=True, metavar="NAME", help="Members that may differ, as cwd.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="A working directory in place of the recorded one.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long to wait for a message; the default is 60 for --as client, 10 for --through.",
)
@click.option("--max", "limit", type=click.IntRange(min=1), default=100, show_default=True,
              help="Differences that are shown.")  # fmt: skip
@trace_options
def command(
    file: str,
    agent: tuple[str, ...],
    side: Literal["agent", "client"] | None,
    through: str | None,
    chain: str | None,
    cwd: str | None,
    timeout: float | None,
    **settings: Any,
) -> None:
    """Play a recorded session again: as the agent, as the client, or as both around a chain.

    FILE is a trace file, or the name of a recording of the package (opencode, qwen-code, ...).

    --as agent serves the recorded agent on stdin and stdout, for an editor or as `run:` in a chain
    file. --as client sends what the client sent to a chain or an agent. --through runs the session
    through a changed chain and shows what differs at its two ends. `trace diff` of FILE and the
    file of --trace shows what differs between them.

    Requests are recognised by method and content. Ids, times and durations are not compared; they
    are replaced by those of the new session. Differences go to stdout; of --as agent, to stderr.
    A recording may name commands (MCP servers, terminals) and allow them: replay only your own,
    or those that you have read.

    Exit codes: 0 no differences, 1 differences, 2 wrong usage, 3 the chain did not start.

    \b
    Examples:
      acp-conductor trace replay t.jsonl --as agent
      acp-conductor trace replay t.jsonl --as client -- "claude-agent-acp"
      acp-conductor trace replay t.jsonl --through changed.yaml --trace new.jsonl
    """
    from conductor.cli.command_group import log_for_people

    log_for_people(click.get_current_context(), prints_errors=False)
    if (side is None) == (through is None):
        raise click.UsageError("write either --as agent, --as client or --through CHAIN.yaml")
    if agent and side != "client":
        raise click.UsageError("only --as client takes a chain or an agent behind `--`")
    from conductor.cli.trace.replay_run import ReplaySettings, play_agent, play_client, play_through

    if side == "agent":
        play_agent(_recording(file, "agent", chain).moved(cwd), ReplaySettings(**settings))
    wait = _TIMEOUT["client" if through is None else "through"] if timeout is None else timeout
    options = ReplaySettings(**settings, timeout=wait, trace=open_trace())
    client = _recording(file, "client", chain)
    if through is None:
        play_client(client.moved(cwd), _chain_of(agent), options)
    from conductor.cli.load import read_chain
    from conductor.testing.recorded_session import RecordedSession

    behind = _recording(file, "agent", chain).received_by(client)
    session = RecordedSession(client.moved(cwd), behind.moved(cwd))
    play_through(session, read_chain(through), options)


def _recording(file: str, end: End, chain: str | None) -> Recording:
    from conductor.cli.trace.reading import no_trace
    from conductor.testing.recording import Recording
    from conductor.tracing.reader import TraceFileError

    try:
        return Recording.load(file, end=end, chain=chain)
    except TraceFileError as exc:
        raise no_trace(exc) from exc
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    except OSError as exc:
        raise click.UsageError(f"{file}: {exc.strerror}") from exc


def _chain_of(words: tuple[str, ...]) -> ChainFile:
    if not words:
        raise click.UsageError("--as client needs a chain file or an agent's command behind `--`")
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")):
        from conductor.cli.load import read_chain

        return read_chain(words[0], "agent")
    from conductor.chainfile.model import ChainFile
    from conductor.cli.component_specs import parse_component_arguments

    *proxies, agent = parse_component_arguments(words)
    return ChainFile(path="<command line>", name="replay", proxies=tuple(proxies), agent=agent)
