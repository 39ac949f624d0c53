"""Build the components of one chain from the specs of a chain file or command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from conductor.chain.adapter_insertion import adapter_name, insert_adapters
from conductor.chain.bridge_insertion import BridgeInsertion, InsertableBridge
from conductor.chain.components import ChainSpec, client_params
from conductor.chain.launchers import launcher_for
from conductor.chainfile.model import Adaptation, ComponentSpec, McpBridgeMode, McpStart, Sandbox
from conductor.errors import RegistryError, StartError
from conductor.jsonrpc.messages import Payload
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.routing.capabilities import with_bridgeable_mcp_over_acp
from conductor.routing.component import Component
from conductor.routing.proxy_meta import WithoutProxyMeta
from conductor.secrets.formats import secret_parts
from conductor.secrets.masking import register_environment, register_secrets
from conductor.supervision.component_run import is_remote
from conductor.supervision.supervisor import SupervisedComponent
from conductor.transport.spawn import SpawnError

if TYPE_CHECKING:
    from conductor.chain.chooser import ChainPlan
    from conductor.chainfile import ChainFile
    from conductor.plugins.plugin_component import PluginComponent
    from conductor.proxy.second_agent import AgentConnection, AgentSource

__all__ = [
    "bridge_component",
    "build_components",
    "components_of",
    "open_agent_chain",
    "spec_of",
    "spec_of_plan",
]

_START: Final = McpStart()

log: Final = get_logger(component="conductor")


def build_components(
    specs: Sequence[ComponentSpec],
    *,
    mode: Literal["agent", "proxy"],
    patch_result: Callable[[bytes], bytes] | None = None,
    mcp_bridge: McpBridgeMode | None = None,
    mcp: McpStart | None = None,
    limits: Limits | None = None,
    adapt: Mapping[str, Adaptation] | None = None,
) -> list[Component]:
    """The components for the given specs, not started. In "agent" mode the last one is the agent.

    `mcp_bridge` is the mode of the bridge for MCP servers over ACP, which is placed before the
    agent or inserted later, with the chain's `limits`; `None` means no bridge, "off" one that is
    inserted only to refuse servers, or to pass them on to an agent that takes them itself. `mcp`:
    what follows if a server does not start. `adapt` are the settings of adapters, which are placed
    before the first component or inserted before the agent when it has answered; `None` means no
    adapters.
    `patch_result` may change the agent's raw `initialize` result.
    Raises one `StartError` that lists all components that cannot be built.
    """
    register_environment(os.environ)
    if any(spec.sandbox is not None for spec in specs):
        specs = _protected(specs)
    if any(spec.when for spec in specs):
        specs = _those_that_apply(specs, has_agent=mode == "agent")
    for spec in specs:
        register_secrets(component_secrets(spec, os.environ))
    components: list[Component] = []
    errors: list[StartError] = []
    for index, written in enumerate(specs):
        is_agent = mode == "agent" and index == len(specs) - 1
        try:
            spec = _with_command(written)
            if is_agent and spec.sandbox is not None:
                components += _before_sandbox(spec)
            if is_agent and mcp_bridge is not None and not _agent_is_remote(spec, mcp_bridge):
                settings = (mcp_bridge, limits or Limits(), mcp or _START)
                components += _bridged_agent(spec, *settings)
            else:
                components += _components(spec, "agent" if is_agent else "proxy", patch_result)
        except StartError as exc:
            errors.append(exc)
    if mode == "agent" and not errors and adapt is not None:
        insert_adapters(components, specs, adapt, partial(_adapter, adapt))
    if errors:
        raise _merged_error(errors)
    if mode == "agent" and len(specs) > 1 and isinstance(components[-1], SupervisedComponent):
        components[-1].link.plain.insert(WithoutProxyMeta())
    processes = [each for each in components if isinstance(each, SupervisedComponent)]
    for each in processes:
        each.repeats_payloads = len(processes) > 1
    return components


def _adapter(
    adapt: Mapping[str, Adaptation], name: str, options: Mapping[str, Any]
) -> PluginComponent:
    """The proxy of an adapter, not started. Raises `StartError`."""
    location = adapt[name].location if name in adapt else None
    spec = ComponentSpec(name=adapter_name(name), use=name, options=options, location=location)
    return _plugin_component(spec, "proxy")


def _those_that_apply(
    specs: Sequence[ComponentSpec], *, has_agent: bool
) -> Sequence[ComponentSpec]:
    """Without the components with a `when:` that does not hold for the client or this process."""
    from conductor.chainfile.paths import working_directory
    from conductor.chainfile.when import Facts, client_facts, names_of_agent, unmet_conditions

    agents = names_of_agent(specs[-1]) if has_agent else frozenset()
    facts = Facts(os.environ, working_directory(), agents)
    left_out = unmet_conditions(specs, client_facts(client_params.get(), facts))
    for name, condition in left_out.items():
        log.lifecycle("component left out", name=name, when=condition)
    return [spec for spec in specs if spec.name not in left_out]


def _protected(specs: Sequence[ComponentSpec]) -> Sequence[ComponentSpec]:
    """With what programs in a sandbox must not change. Raises `StartError`."""
    from conductor.transport.protection import protected

    try:
        return protected(specs)
    except (SpawnError, OSError) as exc:
        first = next(spec for spec in specs if spec.sandbox is not None)
        raise StartError(first.name, str(exc), location=str(first.location or "")) from exc


def components_of(file: ChainFile) -> list[Component]:
    """The components of a chain file, not started; see `build_components`."""
    mode: Literal["agent", "proxy"] = "proxy" if file.agent is None else "agent"
    return build_components(
        file.flat(),
        mode=mode,
        mcp_bridge=file.mcp_bridge,
        mcp=file.mcp,
        limits=file.limits,
        adapt=file.adapt,
    )


def spec_of(file: ChainFile, make: Callable[[], Sequence[Component]] | None = None) -> ChainSpec:
    """What a chain of this file is made of; `make` if its components are others at each start."""
    return ChainSpec(
        make or partial(components_of, file),
        "proxy" if file.agent is None else "agent",
        file.limits,
        file.stop_timeout,
        file.session_processes,
        file.shares_processes,
    )


def spec_of_plan(plan: ChainPlan) -> ChainSpec:
    """What the chain of a session is made of."""
    return spec_of(plan.chain, lambda: components_of(plan.to_start()))


def open_agent_chain(
    source: AgentSource,
    *,
    name: str | None,
    env: Mapping[str, str],
    files: Mapping[str, bytes] | None = None,
) -> AbstractAsyncContextManager[tuple[str, AgentConnection]]:
    """Run a chain for a second agent of a plugin; see `SecondAgentHost.open_agent_chain`. `files`
    are those that the plugin may load."""
    from conductor.chain.second_agent import run_agent_chain

    return run_agent_chain(spec_of, source, name=name, env=env, files=files)


def bridge_component(
    mode: McpBridgeMode,
    limits: Limits,
    sandbox: Sandbox | None = None,
    start: McpStart = _START,
) -> PluginComponent:
    """The MCP bridge, to be placed before the agent.

    `sandbox`: that of the agent, which shows no socket in the file system; `start`: what follows
    if a server does not start.
    """
    offline = sandbox is not None and not sandbox.network
    options: dict[str, Any] = {"mode": mode, "sandboxed": sandbox is not None, "offline": offline}
    options |= {"requires_servers": start.required, "start_timeout": start.start_timeout}
    spec = ComponentSpec(name="mcp-bridge", use="mcp-bridge", options=options)
    component = _plugin_component(spec, "proxy")
    cast("InsertableBridge", component.plugin).limits = limits
    return component


def _with_command(spec: ComponentSpec) -> ComponentSpec:
    """The component with the command that the registry names. Raises `StartError`."""
    if spec.registry is None:
        return spec
    from conductor.registry.resolve import resolved

    try:
        return resolved(spec)
    except RegistryError as exc:
        raise StartError(spec.name, str(exc), location=str(spec.location or "")) from exc


def _merged_error(errors: Sequence[StartError]) -> StartError:
    """One error for several components that cannot be built, with the name of the first."""
    first, *others = errors
    if not others:
        return first
    reason = "\n".join([first.reason, *map(str, others)])
    return StartError(first.component, reason, location=first.location)


def _bridged_agent(
    spec: ComponentSpec, mode: McpBridgeMode, limits: Limits, start: McpStart
) -> list[Component]:
    """The agent, with the bridge before it or inserted when it is needed (`BridgeInsertion`)."""
    make_bridge = partial(bridge_component, mode, limits, spec.sandbox, start)
    patch_result = None if mode == "off" else with_bridgeable_mcp_over_acp
    (agent,) = _components(spec, "agent", patch_result)
    if not isinstance(agent, SupervisedComponent):
        return [make_bridge(), agent]
    agent.link.plain.insert(
        BridgeInsertion(
            agent.link, make_bridge, lambda bridge: agent.host.insert(bridge, before=agent)
        )
    )
    return [agent]


def _before_sandbox(agent: ComponentSpec) -> list[Component]:
    """The plugins before an agent in a sandbox: they refuse sessions in directories that it does
    not show, and map paths if it shows them elsewhere."""
    from conductor.transport.sandbox import workspaces

    assert agent.sandbox is not None
    try:
        shared = workspaces(agent, os.environ)
    except SpawnError as exc:
        raise StartError(agent.name, str(exc), location=str(agent.location or "")) from exc
    directories = [*shared, *agent.sandbox.read, *agent.sandbox.write]
    place = f" ({agent.location})" if agent.location is not None else ""
    help = f"Add it to `workspaces` of the agent's `sandbox`{place}."
    options: dict[str, Any] = {"directories": directories, "help": help}
    guard = ComponentSpec(name="sandbox", use="sandbox_guard", options=options)
    found: list[Component] = [_plugin_component(guard, "proxy")]
    if any(outside != inside for outside, inside in shared.items()):
        paths = shared | {path: path for path in directories if path not in shared}
        mapping = ComponentSpec(name="path_map", use="path_map", options={"paths": paths})
        found.append(_plugin_component(mapping, "proxy"))
    return found


def _agent_is_remote(agent: ComponentSpec, mode: McpBridgeMode) -> bool:
    """Whether the agent runs on another machine, where it cannot reach the bridge's servers.

    The conductor that serves the agent there has a bridge of its own.
    """
    return mode == "auto" and is_remote(agent)


def _components(
    spec: ComponentSpec,
    role: Literal["proxy", "agent"],
    patch_result: Callable[[bytes], bytes] | None,
) -> Sequence[Component]:
    """The component of an entry."""
    patch_result = patch_result if role == "agent" else None
    if spec.use is not None and spec.isolate:
        return [_isolated_plugin(spec, role, patch_result)]
    if spec.use is not None:
        return [_plugin_component(spec, role)]
    return [SupervisedComponent(spec, role, launcher_for(spec), patch_result)]


def _plugin_component(spec: ComponentSpec, role: Literal["proxy", "agent"]) -> PluginComponent:
    from conductor.plugins.loading import instantiate, load_class_for_role
    from conductor.plugins.plugin_component import PluginComponent

    location = str(spec.location) if spec.location is not None else None
    plugin = instantiate(spec, load_class_for_role(spec, role))
    required = spec.required or plugin.required
    return PluginComponent(
        spec.name,
        plugin,
        role,
        location,
        spec.start_timeout,
        spec.stop_timeout,
        bypassed_on_failure=spec.on_failure != "end_chain" and not required,
        required=required,
        cancel_timeout=spec.cancel_timeout,
        agent_chain_opener=partial(open_agent_chain, files=spec.files),
    )


def _isolated_plugin(
    spec: ComponentSpec,
    role: Literal["proxy", "agent"],
    patch_result: Callable[[bytes], bytes] | None,
) -> SupervisedComponent:
    """The plugin in a process of its own (`isolate: true`), which reports what is known only once
    it has been made."""
    from conductor.plugins.isolation import (
        PluginInfoStage,
        as_isolated_process,
        parse_plugin_info,
    )
    from conductor.supervision.handler_reports import HandlerReports

    isolated = as_isolated_process(spec, role)
    component = SupervisedComponent(isolated, role, launcher_for(isolated), patch_result)
    component.handler_reports = reports = HandlerReports()
    reports.watch(component.link)

    def read(params: Payload | None) -> None:
        info = parse_plugin_info(params)
        if info.handled is not None:
            reports.take(info.handled)
        elif info.failed is not None:
            component.set_end_cause(info.failed)
        else:
            component.restart_policy.required = spec.required or info.required

    component.link.plain.insert(PluginInfoStage(read))
    return component


def component_secrets(spec: ComponentSpec, environ: Mapping[str, str]) -> list[str]:
    """The secret values among a component's settings, to be masked in logs and errors: what the
    chain file declares (`secrets:`), and each value that is named or looks like a secret.

    `environ` is the environment of the conductor. A value from `${VAR}` is tested under two names:
    the variable's and that of the setting.
    """
    found = [environ[name] for name in spec.secrets if name in environ]
    for name, value in _named_values(spec):
        found += [value] if name in spec.secrets else secret_parts(name, value)
    return found


def _named_values(spec: ComponentSpec) -> Iterator[tuple[str, str]]:
    yield from ((name, value) for name, value in spec.env.items() if value is not None)
    yield from spec.headers.items()
    yield from _texts("", spec.options)
    if spec.connect is not None:
        from urllib.parse import parse_qsl, urlsplit

        yield "connect", spec.connect
        yield from parse_qsl(urlsplit(spec.connect).query)
    for path, written in spec.written.items():
        place = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
        for variable, value in zip(written.names, written.values, strict=True):
            yield variable, value
            yield place, value


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _texts(str(key), inner)
        case list():
            for inner in value:
                yield from _texts(name, inner)
        case str() if not value.isdigit():  # digits alone are a number of tokens, not a secret
            yield name, value
