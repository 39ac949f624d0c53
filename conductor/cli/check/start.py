"""`check --start`: start and initialize a chain, print what was negotiated, stop it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec
import trio

from conductor.adapters.table import ADAPTERS, adapter_settings
from conductor.chain.adapter_insertion import adapter_name
from conductor.chain.chain import Chain
from conductor.chain.stdio_server import exit_now
from conductor.chainfile.model import ChainFile
from conductor.cli.login_help import next_steps, offered_methods
from conductor.cli.prompt.display import Stdout, TextDisplay, one_line
from conductor.cli.terminal_text import table
from conductor.cli.trial import Trial, take_stdout
from conductor.cli.tried_client import TriedClient
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.json_values import decode_value
from conductor.routing.capabilities import has_mcp_over_acp, with_mcp_over_acp
from conductor.supervision.initialization import Initialization
from conductor.transport.process_tree import kill_descendants

__all__ = ["start_all"]

_KINDS: Final = ("registry", "ssh", "run", "use", "connect", "unix")


def start_all(chains: Sequence[ChainFile], client: TriedClient | None = None) -> NoReturn:
    """Try the chains one after the other; exit with 0, or with 3 if any did not start."""
    stdout = Stdout(take_stdout())
    started: list[bool] = []
    signals: list[int] = []
    try:
        for chain in chains:
            if not signals:
                trial = Trial(chain, signals)
                trio.run(_try, trial, stdout, client)
                started.append(trial.seconds is not None)
    finally:
        kill_descendants()
    if signals:
        exit_now(128 + signals[0])
    exit_now(0 if all(started) else 3)


async def _try(trial: Trial, stdout: Stdout, client: TriedClient | None) -> None:
    """Start one chain and print the result."""
    path = trial.file.path
    remark = "" if trial.file.agent is not None else " (no agent: tried with test-agent)"
    remark += "" if client is None else f" for {client.name}"
    async with trial.running() as attached:
        await trial.start(attached, params=None if client is None else client.params)
        match trial.error:
            case RequestError() as error:
                stdout.write(f"{path}: did not start{remark}\n")
                TextDisplay(stdout).failed("initialize", error)
            case RemoteProtocolError() as error:
                stdout.write(f"{path}: did not start{remark}\n  {error}\n")
            case ConnectionClosed():
                stdout.write(f"{path}: the chain ended without an answer{remark}\n")
            case None:
                stdout.write(f"{path}: started in {_milliseconds(trial.seconds)}{remark}\n")
                stdout.write(_report(trial, attached.chain, client))


def _report(trial: Trial, chain: Chain, client: TriedClient | None) -> str:
    file, answer = trial.tried, trial.answer
    specs = file.flat()
    components = {component.name: component for component in chain.components}
    rows = []
    below: Mapping[str, Any] | None = None
    agent_answer: Mapping[str, Any] = answer
    for index in range(len(specs) - 1, -1, -1):
        spec, is_agent = specs[index], index == len(specs) - 1
        # By name: an MCP bridge and adapters, which are in no chain file, may be between them.
        component = chain.components[-1] if is_agent else components.get(spec.name)
        initialization = getattr(component, "initialization", None)
        result = getattr(initialization, "result", None)
        if is_agent:
            result = agent_answer = result or _without_acp(file, answer)
        rows.append(
            (
                spec.name,
                next(kind for kind in _KINDS if getattr(spec, kind) is not None),
                "agent" if is_agent else _dialect(initialization) if component else "left out",
                _milliseconds(trial.waited.get(spec.name)),
                _capability_summary(result, below),
            )
        )
        if is_agent and result is not None and _mcp_over_acp(answer, result) == "bridged":
            below = decode_value(with_mcp_over_acp(msgspec.json.encode(result)))
        else:
            below = result if result is not None else below
    head = ("component", "kind", "dialect", "start", "capabilities")
    lines = [f"  {line}" for line in table(head, rows[::-1], left=len(head))]
    lines.append(f"  protocol version {answer.get('protocolVersion')}, {_agent_name(answer)}")
    lines.append(f"  MCP over ACP: {_mcp_over_acp(answer, agent_answer)}")
    if adapters := [name for name in components if name.startswith(adapter_name(""))]:
        lines.append(f"  inserted: {', '.join(adapters)}")
    others = "inserted if needed" if client is None else f"not for {client.name}"
    lines += [f"  {others}: {text}" for text in _not_inserted(file, adapters)]
    if calls := trial.unasked_calls():
        lines += [f"  {calls.text}", *(f"    {each}" for each in calls.helps)]
    if methods := offered_methods(answer):
        lines.append("  authentication: not tried; if the agent requires it:")
        lines += [f"    {one_line(each)}" for each in next_steps(methods, file)]
    return "\n".join(lines) + "\n"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


def _not_inserted(file: ChainFile, inserted: Sequence[str]) -> Iterator[str]:
    """The adapters of the chain file that this client and agent do not need."""
    settings = adapter_settings(file.adapt, file.flat())
    for row in ADAPTERS:
        setting = settings.get(row.name)
        if setting is None or setting.mode != "auto" or adapter_name(row.name) in inserted:
            continue
        yield f"{adapter_name(row.name)} ({row.condition})"


def _dialect(initialization: Initialization | None) -> str:
    if initialization is None:
        return "in process"
    return f"{initialization.dialect}/*"


def _agent_name(answer: Mapping[str, Any]) -> str:
    info = answer.get("agentInfo") or answer.get("info")
    if not isinstance(info, Mapping):
        return "an agent without a name"
    return f"{info.get('title') or info.get('name')} {info.get('version', '')}".strip()


def _without_acp(file: ChainFile, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `initialize` result of an in-process agent, without the MCP bridge's additions."""
    mcp = answer.get("agentCapabilities", {}).get("mcpCapabilities", {})
    if file.mcp_bridge == "off" or "acp" not in mcp:
        return answer
    mcp = {name: value for name, value in mcp.items() if name != "acp"}
    capabilities = {**answer["agentCapabilities"], "mcpCapabilities": mcp}
    return {**answer, "agentCapabilities": capabilities}


def _mcp_over_acp(answer: Mapping[str, Any], agent_answer: Mapping[str, Any]) -> str:
    """`yes` if the agent supports MCP over ACP, `bridged` if only the chain does, else `no`."""
    if has_mcp_over_acp(msgspec.json.encode(agent_answer)):
        return "yes"
    return "bridged" if has_mcp_over_acp(msgspec.json.encode(answer)) else "no"


def _capability_summary(result: Mapping[str, Any] | None, below: Mapping[str, Any] | None) -> str:
    """The capabilities in short form, without those that are false or empty."""
    if result is None:
        return "-"
    shown = _capability_text(result)
    if below is not None and shown == _capability_text(below):
        return "the same"
    return shown or "nothing"


def _capability_text(result: Mapping[str, Any]) -> str:
    capabilities = result.get("agentCapabilities") or result.get("capabilities")
    words = _capability_words(capabilities) if isinstance(capabilities, Mapping) else []
    return ", ".join(words)


def _capability_words(capabilities: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in capabilities.items():
        if name == "_meta" or value is False or value is None:
            continue
        inner = _capability_words(value) if isinstance(value, Mapping) else []
        short = name.removesuffix("Capabilities")
        if inner:
            words.append(f"{short} ({' '.join(inner)})")
        elif not (isinstance(value, Mapping) and name.endswith("Capabilities")):
            words.append(short)
    return words
