"""From what a chain file (or a command line) says to the components of one chain."""

from __future__ import annotations

import os
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
from conductor.limits import Limits
from conductor.masking import hide, hide_environment
from conductor.messages import Payload
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
    limits: Limits | None = None,
) -> list[Component]:
    """The components for the given specs, not started. In "agent" mode the last one is the agent.

    `mcp_bridge` puts the bridge for MCP servers over ACP before the agent, in this mode, with the
    chain's `limits`.
    `amend` may change the agent's answer to `initialize`. Raises `StartError` for components
    that cannot be made, with all of their mistakes.
    """
    hide_environment(os.environ)
    for spec in specs:
        hide(secrets_of(spec, os.environ))
    components: list[Component] = []
    errors: list[StartError] = []
    for index, spec in enumerate(specs):
        is_agent = mode == "agent" and index == len(specs) - 1
        try:
            if is_agent and mcp_bridge is not None and not _is_out_of_reach(spec, mcp_bridge):
                components += _bridged_agent(spec, mcp_bridge, limits or Limits())
            else:
                components.append(_component(spec, "agent" if is_agent else "proxy", amend))
        except StartError as exc:
            errors.append(exc)
    if errors:
        raise _together(errors)
    if mode == "agent" and len(specs) > 1 and isinstance(components[-1], CommandComponent):
        components[-1].wire.removes_marks = True
    return components


def _together(errors: Sequence[StartError]) -> StartError:
    """Several components that cannot be made as one error, in the name of the first."""
    first, *others = errors
    if not others:
        return first
    reason = "\n".join([first.reason, *map(str, others)])
    return StartError(first.component, reason, place=first.place)


def _bridged_agent(spec: Spec, mode: McpBridge, limits: Limits) -> list[Component]:
    """The agent, with the bridge before it, or ready to be put there when it is needed."""
    if mode == "http":
        return [_bridge(mode, limits)[0], _component(spec, "agent", None)]
    agent = _component(spec, "agent", None if mode == "off" else bridged)
    if not isinstance(agent, CommandComponent):
        return [_bridge(mode, limits)[0], agent]
    agent.wire.interceptor = LateBridge(agent, partial(_bridge, mode, limits)).takes
    return [agent]


def _is_out_of_reach(agent: Spec, mode: McpBridge) -> bool:
    """Whether an agent could not start, or reach, what our bridge would name to it: both are here.

    The conductor that serves it there has a bridge of its own.
    """
    return mode == "auto" and is_elsewhere(agent)


def _bridge(mode: McpBridge, limits: Limits) -> tuple[Component, Bridge]:
    component = _plugin(Spec(name="mcp-bridge", use="mcp-bridge", options={"mode": mode}), "proxy")
    bridge = cast("Bridge", component.plugin)
    bridge.limits = limits
    return component, bridge


def _component(
    spec: Spec, role: Literal["proxy", "agent"], amend: Callable[[bytes], bytes] | None
) -> Component:
    amend = amend if role == "agent" else None
    if spec.use is not None and spec.isolate:
        return _isolated(spec, role, amend)
    if spec.use is not None and spec.on_failure == "restart":
        from conductor.components.loading import class_for

        required = spec.required or class_for(spec, role).required
        spec = msgspec.structs.replace(spec, required=required)
    elif spec.use is not None:
        return _plugin(spec, role)
    return CommandComponent(spec, role, amend)


def _plugin(spec: Spec, role: Literal["proxy", "agent"]) -> PluginComponent:
    from conductor.components.loading import class_for, instance_of
    from conductor.components.plugin import PluginComponent

    plugin = instance_of(spec, class_for(spec, role))
    place = str(spec.place) if spec.place is not None else None
    may_fail = spec.on_failure != "end_chain" and not (spec.required or plugin.required)
    seconds = (spec.start_timeout, spec.stop_timeout)
    return PluginComponent(
        spec.name, plugin, role, place, *seconds, may_fail, turn_timeout=spec.cancel_timeout
    )


def _isolated(
    spec: Spec, role: Literal["proxy", "agent"], amend: Callable[[bytes], bytes] | None
) -> CommandComponent:
    """The same plugin in a process of its own."""
    from conductor.components.isolation import as_process, read_about

    component = CommandComponent(as_process(spec, role), role, amend)

    def learn(params: Payload | None) -> None:
        news = read_about(params)
        if news.failed is not None:
            component.told_why(news.failed)
        else:
            component.contract.required = spec.required or news.required

    component.wire.about_plugin = learn
    return component
