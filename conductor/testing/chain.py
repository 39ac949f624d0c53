"""`open_chain`: a whole chain in memory, with a fake client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from conductor.chain.build import bridge_component, build_components, open_agent_chain
from conductor.chain.components import ChainSpec
from conductor.chainfile.model import STOP_TIMEOUT, ComponentSpec
from conductor.client.embedding import attach
from conductor.limits import Limits
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy.base import Agent, Plugin
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.component import Component
from conductor.testing.failures import ChainFailures
from conductor.testing.fakes import FakeClient, FakeComponent

__all__ = ["ChainPart", "open_chain"]

ChainPart: TypeAlias = Plugin | FakeComponent | ComponentSpec
"""A proxy or agent: an instance of a plugin class, a fake component, or a chain file's entry."""


@asynccontextmanager
async def open_chain(
    *parts: ChainPart | str | os.PathLike[str],
    mode: Literal["agent", "proxy"] = "agent",
    limits: Limits | None = None,
    stop_timeout: float = STOP_TIMEOUT,
    bridged: bool = True,
    bridge: bool = False,
    strict: bool = False,
) -> AsyncIterator[FakeClient]:
    """Run a chain of `parts` for the duration of the block; yields its `FakeClient`.

    The first part is nearest to the client. A path stands for all components of a chain file;
    parts after it take the place of its agent. If the last part is a proxy, a `TestAgent` is added
    behind it. In "proxy" mode the fake client acts
    as an outer conductor: the chain has no agent, and its successor is the client as well.

    No component starts before the client sends `initialize`. After the block the chain stops in
    order; `client.attached.ending` tells how it ended.

    `bridge` places the MCP bridge before the agent, as `acp-conductor run` does: tools of a proxy
    reach an agent without support for MCP over ACP, through a process that the agent starts.
    Without it, the agent gets the declarations of such servers as they are, and is announced to
    support them unless `bridged` is false.

    `strict` raises in the test what handlers, event handlers, tasks and `lifespan()` of plugins in
    this process raise: the block is cancelled, and the exception propagates out of it. The first
    one is raised; notes tell the others. Without it they are only logged, as in production, and
    requests get error -32603; a note tells them if the test fails. A `RequestError` of a request's
    handler is an answer in both cases. What scripts and handlers of fakes raise is always raised.
    """
    flat: list[ChainPart] = []
    for index, part in enumerate(parts, 1):
        if isinstance(part, Plugin | FakeComponent | ComponentSpec):
            flat.append(part)
        else:
            flat += _file(part, with_agent=index == len(parts))
    if mode == "agent" and (not flat or _is_proxy(flat[-1])):
        from conductor.testing.agent import TestAgent

        flat.append(TestAgent("counted"))
    names = _names(flat)

    def make() -> list[Component]:
        last = len(flat) - 1
        components = [
            component
            for index, part in enumerate(flat)
            for component in _components(
                part, names[index], mode == "agent" and index == last, patches_agent
            )
        ]
        if has_bridge:
            components.insert(-1, bridge_component("auto", limits or Limits()))
        for component in components:
            if isinstance(component, PluginComponent):
                component.failures.listener = failures.add if strict else failures.add_logged
                component.failures.logs_all = not strict
        return components

    has_bridge = bridge and mode == "agent"
    patches_agent = bridged and not has_bridge
    failures = ChainFailures()
    try:
        announces = patches_agent and mode == "agent"
        spec = ChainSpec(
            make, mode, limits or Limits(), stop_timeout, announces_mcp_over_acp=announces
        )
        async with attach(FakeClient, spec) as attached:
            attached.client.attached = attached
            with failures.block, failures.noted():
                yield attached.client
    except Exception as exc:
        if not failures.replace(exc):
            raise
    failures.raise_first()


def _file(path: str | os.PathLike[str], *, with_agent: bool) -> list[ChainPart]:
    from conductor.chainfile import load

    chain = load(os.fspath(path))
    parts: list[ChainPart] = list(chain.flat())
    return parts if with_agent or chain.agent is None else parts[:-1]


def _is_proxy(part: ChainPart) -> bool:
    """Whether a part cannot be an agent; a chain file's entry may be either."""
    if isinstance(part, FakeComponent):
        return part.role == "proxy"
    return isinstance(part, Plugin) and not isinstance(part, Agent)


def _names(parts: list[ChainPart]) -> list[str]:
    names: list[str] = []
    for part in parts:
        name = stem = type(part).__name__ if isinstance(part, Plugin) else part.name
        number = 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def _components(part: ChainPart, name: str, is_agent: bool, bridged: bool) -> Sequence[Component]:
    if isinstance(part, Plugin):
        role: Literal["agent", "proxy"] = "agent" if is_agent else "proxy"
        return [PluginComponent(name, part, role, agent_chain_opener=open_agent_chain)]
    if isinstance(part, FakeComponent):
        part.name = name
        return [part]
    patch_result: Any = with_mcp_over_acp if bridged and is_agent else None
    return build_components(
        [part], mode="agent" if is_agent else "proxy", patch_result=patch_result
    )
