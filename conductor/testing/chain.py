"""`open_chain`: a whole chain in memory, with a fake client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from conductor.chain.build import build_components, open_agent_chain
from conductor.chainfile.model import ComponentSpec
from conductor.client.embedding import attach
from conductor.limits import Limits
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy.base import Agent, Plugin
from conductor.routing.capabilities import with_mcp_over_acp
from conductor.routing.component import Component
from conductor.testing.fakes import FakeClient, FakeComponent

__all__ = ["ChainPart", "open_chain"]

ChainPart: TypeAlias = Plugin | FakeComponent | ComponentSpec
"""A proxy or agent: an instance of a plugin class, a fake component, or a chain file's entry."""


@asynccontextmanager
async def open_chain(
    *parts: ChainPart | str | os.PathLike[str],
    mode: Literal["agent", "proxy"] = "agent",
    limits: Limits | None = None,
    stop_timeout: float = 5.0,
    bridged: bool = True,
) -> AsyncIterator[FakeClient]:
    """Run a chain of `parts` for the duration of the block; yields its `FakeClient`.

    The first part is nearest to the client. A path stands for all components of a chain file. If
    the last part is a proxy, a `TestAgent` is added behind it. In "proxy" mode the fake client acts
    as an outer conductor: the chain has no agent, and its successor is the client as well.

    No component starts before the client sends `initialize`. After the block the chain stops in
    order; `client.attached.ending` tells how it ended.
    """
    flat: list[ChainPart] = []
    for part in parts:
        flat += [part] if isinstance(part, Plugin | FakeComponent | ComponentSpec) else _file(part)
    if mode == "agent" and (not flat or _is_proxy(flat[-1])):
        from conductor.testing.agent import TestAgent

        flat.append(TestAgent())
    names = _names(flat)

    def make() -> list[Component]:
        last = len(flat) - 1
        return [
            _component(part, names[index], mode == "agent" and index == last, bridged)
            for index, part in enumerate(flat)
        ]

    async with attach(
        FakeClient,
        make,
        mode=mode,
        limits=limits or Limits(),
        stop_timeout=stop_timeout,
        bridged=bridged and mode == "agent",
    ) as attached:
        attached.client.attached = attached
        yield attached.client


def _file(path: str | os.PathLike[str]) -> list[ChainPart]:
    from conductor.chainfile import load

    return list(load(os.fspath(path)).flat())


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


def _component(part: ChainPart, name: str, is_agent: bool, bridged: bool) -> Component:
    if isinstance(part, Plugin):
        role: Literal["agent", "proxy"] = "agent" if is_agent else "proxy"
        return PluginComponent(name, part, role, agent_chain_opener=open_agent_chain)
    if isinstance(part, FakeComponent):
        part.name = name
        return part
    patch_result: Any = with_mcp_over_acp if bridged and is_agent else None
    return build_components(
        [part], mode="agent" if is_agent else "proxy", patch_result=patch_result
    )[0]
