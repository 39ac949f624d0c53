"""Plugins for chains of tests."""

from __future__ import annotations

from conductor.chainfile import ComponentSpec
from conductor.plugins.loading import instantiate, load_class
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on, on_tool_start
from conductor.proxy.base import Plugin


class Idle(Proxy):
    """Handles nothing: everything passes."""


class PassAll(Proxy):
    """Handles what tests send, and passes it on as it is."""

    @on("_t/request")
    async def pass_request(self, params: bytes, forward):
        return await forward()

    @on("_t/note")
    async def pass_note(self, params: bytes, forward):
        await forward()


class Updates(Proxy):
    """Handles every update, and passes it on as it is."""

    @on("session/update")
    async def pass_update(self, params: bytes, forward):
        await forward()


class ToolStarts(Proxy):
    """Sees the updates that announce tool calls, and no others."""

    @on_tool_start
    async def note(self, session, call):
        pass


PLUGINS = {"idle": Idle, "handlers": PassAll, "updates": Updates, "tool starts": ToolStarts}


def plugin(name: str, proxy: Proxy) -> PluginComponent:
    return PluginComponent(name, proxy, "proxy")


def load_plugin(spec: ComponentSpec) -> Plugin:
    """The instance for a component of a chain file."""
    return instantiate(spec, load_class(spec))
