"""From what a chain file (or a command line) says to the components of one chain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import attrs
import msgspec

from conductor.chainfile.model import Component as Spec
from conductor.chainfile.model import McpBridge
from conductor.components.base import Component
from conductor.components.command import CommandComponent
from conductor.components.late_bridge import Bridge, LateBridge
from conductor.errors import StartError
from conductor.masking import hide
from conductor.routing.capabilities import bridged

if TYPE_CHECKING:
    from conductor.components.plugin import PluginComponent

__all__ = ["build"]


def build(
    specs: Sequence[Spec],
    *,
    mode: Literal["agent", "proxy"],
    amend: Callable[[bytes], bytes] | None = None,
    mcp_bridge: McpBridge | None = None,
) -> list[Component]:
    """The components for the given specs, not started. In "agent" mode the last one is the agent.

    `mcp_bridge` puts the bridge for MCP servers over ACP before the agent, in this mode.
    `amend` may change the agent's answer to `initialize`. Raises `StartError` for a component that
    cannot be made, and `ChainFileError` for options that do not fit.
    """
    for spec in specs:
        hide(spec.env.values())
        hide(value for written in spec.written.values() for value in written.values)
    components: list[Component] = []
    for index, spec in enumerate(specs):
        is_agent = mode == "agent" and index == len(specs) - 1
        if is_agent and mcp_bridge is not None:
            components += _bridged_agent(spec, mcp_bridge)
        else:
            components.append(_component(spec, "agent" if is_agent else "proxy", amend))
    return components


def _bridged_agent(spec: Spec, mode: McpBridge) -> list[Component]:
    """The agent, with the bridge before it, or ready to be put there when it is needed."""
    bridge = Spec(name="mcp-bridge", use="mcp-bridge", options={"mode": mode})
    if mode not in ("auto", "stdio"):
        return [_plugin(bridge, "proxy"), _component(spec, "agent", None)]
    agent = _component(spec, "agent", bridged)
    if not isinstance(agent, CommandComponent):
        return [_plugin(bridge, "proxy"), agent]
    agent.wire.interceptor = LateBridge(agent, partial(_bridge, bridge)).takes
    return [agent]


def _bridge(spec: Spec) -> tuple[Component, Bridge]:
    component = _plugin(spec, "proxy")
    return component, cast("Bridge", component.plugin)


def _component(
    spec: Spec, role: Literal["proxy", "agent"], amend: Callable[[bytes], bytes] | None
) -> Component:
    if spec.run is not None:
        return CommandComponent(spec, role, amend if role == "agent" else None)
    if spec.use is not None:
        return _isolated(spec, role, amend) if spec.isolate else _plugin(spec, role)
    place = None if spec.place is None else str(spec.place)
    raise StartError(spec.name, "remote components (`connect:`) are not supported yet", place=place)


def _plugin(spec: Spec, role: Literal["proxy", "agent"]) -> PluginComponent:
    from conductor.components.loading import make_plugin
    from conductor.components.plugin import PluginComponent
    from conductor.proxy.base import Agent

    plugin = make_plugin(spec)
    place = str(spec.place) if spec.place is not None else None
    if isinstance(plugin, Agent) != (role == "agent"):
        kind = "an agent" if isinstance(plugin, Agent) else "a proxy"
        raise StartError(spec.name, f"{spec.use} is {kind} and cannot be the {role}", place=place)
    may_fail = spec.on_failure != "end_chain" and not (spec.required or plugin.required)
    return PluginComponent(spec.name, plugin, role, place, spec.start_timeout, may_fail)


def _isolated(
    spec: Spec, role: Literal["proxy", "agent"], amend: Callable[[bytes], bytes] | None
) -> Component:
    """The same plugin in a process of its own; its options travel in the environment."""
    assert spec.use is not None
    from conductor.components.loading import make_plugin

    # Mistakes in its options are found here, where their places are known.
    required = spec.required or make_plugin(spec).required
    options = msgspec.json.encode(dict(spec.options)).decode()
    env = {**spec.env, "ACP_PROXY_OPTIONS": options}
    if spec.directory is not None:
        env["ACP_PROXY_DIRECTORY"] = spec.directory
    if not spec.inherit_env:
        env.setdefault("PATH", os.environ.get("PATH", os.defpath))
    run = (sys.executable, "-m", "conductor.proxy.standalone", spec.use)
    spec = attrs.evolve(spec, run=run, env=env, use=None, required=required)
    return CommandComponent(spec, role, amend if role == "agent" else None)
