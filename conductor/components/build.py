"""From what a chain file (or a command line) says to the components of one chain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import msgspec

from conductor.chainfile.model import Component as Spec
from conductor.chainfile.model import McpBridge
from conductor.components.base import Component
from conductor.components.command import CommandComponent
from conductor.errors import StartError
from conductor.masking import hide

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
            bridge = Spec(name="mcp-bridge", use="mcp-bridge", options={"mode": mcp_bridge})
            components.append(_plugin(bridge, "proxy"))
        components.append(_component(spec, "agent" if is_agent else "proxy", amend))
    return components


def _component(
    spec: Spec, role: Literal["proxy", "agent"], amend: Callable[[bytes], bytes] | None
) -> Component:
    if spec.run is not None:
        return CommandComponent(spec, role, amend if role == "agent" else None)
    if spec.use is not None:
        return _isolated(spec, role) if spec.isolate else _plugin(spec, role)
    place = None if spec.place is None else str(spec.place)
    raise StartError(spec.name, "remote components (`connect:`) are not supported yet", place=place)


def _plugin(spec: Spec, role: Literal["proxy", "agent"]) -> Component:
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


def _isolated(spec: Spec, role: Literal["proxy", "agent"]) -> Component:
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
    return CommandComponent(spec, role)
