"""Plugins for chains of tests."""

from __future__ import annotations

from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on


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


def plugin(name: str, proxy: Proxy) -> PluginComponent:
    return PluginComponent(name, proxy, "proxy")
