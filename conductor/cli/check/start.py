"""`check --start`: start and initialize a chain, print what was negotiated, stop it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import attrs
import msgspec
import trio

from conductor.adapters.settings import adapter_settings
from conductor.adapters.table import ADAPTERS
from conductor.background_tasks import background_tasks
from conductor.chain.adapter_insertion import adapter_name
from conductor.chain.chain import Chain
from conductor.chain.stdio_server import exit_now
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.attached_chain import attached_chain
from conductor.cli.login_help import AUTH_CAPABILITY, next_steps, offered_methods
from conductor.cli.prompt.display import Stdout, TextDisplay, one_line
from conductor.cli.tried_client import TriedClient
from conductor.client.acp_client import Client
from conductor.client.embedding import AttachedClient, attach_file
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.json_values import decode_value
from conductor.proxy.agent_questions import agent_questions
from conductor.routing.capabilities import has_mcp_over_acp, with_mcp_over_acp
from conductor.routing.component import Component
from conductor.supervision.initialization import Initialization
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.process_tree import become_subreaper, kill_descendants

__all__ = ["StartTimes", "start_all", "unasked_calls"]

_CAPABILITIES: Final = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": AUTH_CAPABILITY,
}
_KINDS: Final = ("registry", "ssh", "run", "use", "connect", "unix")
_TEST_AGENT: Final = ComponentSpec(name="test-agent", use="test-agent")


def start_all(chains: Sequence[ChainFile], tried_client: TriedClient | None = None) -> NoReturn:
    """Try the chains one after the other; exit with 0, or with 3 if any did not start."""
    become_subreaper()
    start_orphan_guard()
    # Plugins run in this process: their output goes to stderr, the report to stdout.
    stdout = Stdout(os.dup(1))
    os.dup2(2, 1)
    started: list[bool] = []
    signals: list[int] = []
    try:
        for chain in chains:
            if not signals:
                started.append(trio.run(_start_chain, chain, stdout, signals, tried_client))
    finally:
        kill_descendants()
    if signals:
        exit_now(128 + signals[0])
    exit_now(0 if all(started) else 3)


async def _start_chain(
    file: ChainFile, stdout: Stdout, signals: list[int], tried_client: TriedClient | None
) -> bool:
    """Start one chain and print the result; returns whether it started."""
    clocks = StartTimes()
    async with background_tasks() as nursery:
        tried = file if file.agent is not None else msgspec.structs.replace(file, agent=_TEST_AGENT)
        started = False
        chain = attach_file(Client, tried, made=partial(clocks.watch, nursery))
        async with attached_chain(chain, signals, partial(_leave, signals)) as attached:
            started = await _initialize(file, tried, attached, stdout, clocks, tried_client)
    return started


def _leave(signals: list[int]) -> NoReturn:
    """Exit although a plugin still runs; other chains are not tried."""
    kill_descendants()
    exit_now(128 + signals[0] if signals else 1)


async def _initialize(
    file: ChainFile,
    tried: ChainFile,
    attached: AttachedClient[Client],
    stdout: Stdout,
    clocks: StartTimes,
    tried_client: TriedClient | None,
) -> bool:
    remark = "" if file.agent is not None else " (no agent: tried with test-agent)"
    remark += "" if tried_client is None else f" for {tried_client.name}"
    begin = trio.current_time()
    try:
        if tried_client is not None:
            answer = await attached.client.initialize_with(tried_client.params)
        else:
            answer = await attached.client.initialize(capabilities=_CAPABILITIES)
    except RequestError as exc:
        stdout.write(f"{file.path}: did not start{remark}\n")
        TextDisplay(stdout).failed("initialize", exc)
        return False
    except RemoteProtocolError as exc:
        stdout.write(f"{file.path}: did not start{remark}\n  {exc}\n")
        return False
    except ConnectionClosed:
        stdout.write(f"{file.path}: the chain ended without an answer{remark}\n")
        return False
    spent = trio.current_time() - begin
    stdout.write(f"{file.path}: started in {spent * 1000:.0f} ms{remark}\n")
    stdout.write(_report(tried, attached.chain, answer, clocks, tried_client))
    if found := unasked_calls(tried, answer):
        message, helps, _ = found
        stdout.write(f"  {message}\n" + "".join(f"    {each}\n" for each in helps))
    if methods := offered_methods(answer):
        stdout.write("  authentication: not tried; if the agent requires it:\n")
        stdout.write("".join(f"    {one_line(x)}\n" for x in next_steps(methods, tried)))
    return True


def _report(
    file: ChainFile,
    chain: Chain,
    answer: Mapping[str, Any],
    clocks: StartTimes,
    tried_client: TriedClient | None,
) -> str:
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
                clocks.shown(spec.name),
                _capability_summary(result, below),
            )
        )
        if is_agent and result is not None and _mcp_over_acp(answer, result) == "bridged":
            below = decode_value(with_mcp_over_acp(msgspec.json.encode(result)))
        else:
            below = result if result is not None else below
    lines = [_table([("component", "kind", "dialect", "start", "capabilities"), *rows[::-1]])]
    lines.append(f"  protocol version {answer.get('protocolVersion')}, {_agent_name(answer)}")
    lines.append(f"  MCP over ACP: {_mcp_over_acp(answer, agent_answer)}")
    if adapters := [name for name in components if name.startswith(adapter_name(""))]:
        lines.append(f"  inserted: {', '.join(adapters)}")
    others = "inserted if needed" if tried_client is None else f"not for {tried_client.name}"
    lines += [f"  {others}: {text}" for text in _not_inserted(file, adapters)]
    return "\n".join(lines) + "\n"


def _not_inserted(file: ChainFile, inserted: Sequence[str]) -> Iterator[str]:
    """The adapters of the chain file that this client and agent do not need."""
    settings = adapter_settings(file.adapt, file.flat())
    for row in ADAPTERS:
        setting = settings.get(row.name)
        if setting is None or setting.mode != "auto" or adapter_name(row.name) in inserted:
            continue
        yield f"{adapter_name(row.name)} ({row.condition})"


def unasked_calls(
    file: ChainFile, answer: Mapping[str, Any]
) -> tuple[str, Sequence[str], bool] | None:
    """Calls of the agent about which it does not ask, if a proxy of the chain decides by permission
    requests: the text, what the user can do, and whether these calls only read."""
    deciding = [spec.name for spec in file.flat() if _decides_by_requests(spec)]
    info = answer.get("agentInfo") or answer.get("info")
    known = agent_questions(str(info.get("name"))) if isinstance(info, Mapping) else None
    text = known.text() if known is not None else None
    if known is None or text is None or not deciding:
        return None
    helps = [each for each in (known.help(),) if each is not None]
    agent = file.flat()[-1]
    if agent.run is not None and agent.sandbox is None and agent.ssh is None:
        helps.append("`sandbox: true` under `agent:` limits what it can do without asking")
    message = f"{text}: `{'`, `'.join(deciding)}` cannot decide about that"
    return message, helps, known.is_governed


def _decides_by_requests(spec: ComponentSpec) -> bool:
    if spec.use == "permissions":
        return True
    hooks = spec.options.get("hooks") if spec.use == "hooks" else None
    entries = (
        [each for each in hooks if isinstance(each, Mapping)] if isinstance(hooks, list) else []
    )
    return any("permission" in (each.get("events") or ()) for each in entries)


def _dialect(initialization: Initialization | None) -> str:
    if initialization is None:
        return "in process"
    return f"{initialization.handshake.dialect}/*"


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


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  "
        + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


@attrs.define(eq=False)
class StartTimes:
    """Seconds for which the chain waited for each component during initialization.

    All components start concurrently, so this is the time that a faster start of the component
    would save, not its start time. In-process components are not measured.
    """

    spent: dict[str, float] = attrs.field(factory=dict)

    def shown(self, name: str) -> str:
        return f"{self.spent[name] * 1000:.0f} ms" if name in self.spent else "-"

    def watch(self, nursery: trio.Nursery, components: Sequence[Component]) -> None:
        """Follow all components, in tasks of the nursery."""
        for component in components:
            initialization = getattr(component, "initialization", None)
            if initialization is not None:
                nursery.start_soon(self.follow, component.name, initialization)

    async def follow(self, name: str, initialization: Initialization) -> None:
        """Add up the time during which the initialization has a deadline."""
        while not initialization.done:
            since, is_initializing = trio.current_time(), initialization.deadline != float("inf")
            await initialization.changed.wait()
            if is_initializing:
                spent = trio.current_time() - since
                self.spent[name] = self.spent.get(name, 0.0) + spent
