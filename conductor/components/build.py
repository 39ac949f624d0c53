"""From what a chain file (or a command line) says to the components of one chain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from conductor.chainfile.model import Component as Spec
from conductor.chainfile.model import McpBridge
from conductor.components.base import Component
from conductor.components.command import CommandComponent
from conductor.components.far_end import is_elsewhere
from conductor.components.late_bridge import Bridge, LateBridge
from conductor.components.secrets import secrets_of
from conductor.errors import StartError
from conductor.masking import hide, hide_environment
from conductor.routing.capabilities import bridged

if TYPE_CHECKING:
    from conductor.components.plugin import PluginComponent
    from conductor.proxy.base import Plugin

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
    hide_environment(os.environ)
    for spec in specs:
        hide(secrets_of(spec, os.environ))
    components: list[Component] = []
    for index, spec in enumerate(specs):
        is_agent = mode == "agent" and index == len(specs) - 1
        if is_agent and mcp_bridge is not None and not _is_out_of_reach(spec, mcp_bridge):
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


def _is_out_of_reach(agent: Spec, mode: McpBridge) -> bool:
    """Whether an agent could not start, or reach, what our bridge would name to it: both are here.

    The conductor that serves it there has a bridge of its own.
    """
    return mode == "auto" and is_elsewhere(agent)


def _bridge(spec: Spec) -> tuple[Component, Bridge]:
    component = _plugin(spec, "proxy")
    return component, cast("Bridge", component.plugin)


def _component(
    spec: Spec, role: Literal["proxy", "agent"], amend: Callable[[bytes], bytes] | None
) -> Component:
    if spec.use is not None and spec.isolate:
        spec = _isolated(spec)
    elif spec.use is not None and spec.on_failure == "restart":
        required = spec.required or _made(spec, role).required
        spec = msgspec.structs.replace(spec, required=required)
    elif spec.use is not None:
        return _plugin(spec, role)
    return CommandComponent(spec, role, amend if role == "agent" else None)


def _made(spec: Spec, role: Literal["proxy", "agent"]) -> Plugin:
    from conductor.components.loading import make_plugin
    from conductor.proxy.base import Agent

    plugin = make_plugin(spec)
    if isinstance(plugin, Agent) != (role == "agent"):
        kind = "an agent" if isinstance(plugin, Agent) else "a proxy"
        place = str(spec.place) if spec.place is not None else None
        raise StartError(spec.name, f"{spec.use} is {kind} and cannot be the {role}", place=place)
    return plugin


def _plugin(spec: Spec, role: Literal["proxy", "agent"]) -> PluginComponent:
    from conductor.components.plugin import PluginComponent

    plugin = _made(spec, role)
    place = str(spec.place) if spec.place is not None else None
    may_fail = spec.on_failure != "end_chain" and not (spec.required or plugin.required)
    seconds = (spec.start_timeout, spec.stop_timeout)
    return PluginComponent(spec.name, plugin, role, place, *seconds, may_fail)


def _isolated(spec: Spec) -> Spec:
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
    return msgspec.structs.replace(spec, run=run, env=env, use=None, required=required)
