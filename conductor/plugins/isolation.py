"""Isolated plugins (`isolate: true`): bootstrap of the plugin's process, and its notifications.

`chain.build` decides which plugins are isolated. The conductor neither imports the plugin's module
nor makes an instance: the plugin's process (`python -m conductor.standalone`) does. The first line
of its stdin has all that it needs, options included, so that no argument and no inherited
environment has any of it. The locations of the chain file are included, so mistakes are reported by
the same code, with the same text, as those of a plugin in the conductor's process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from conductor.chainfile.diagnostics import InterpolatedString, SourceLocation
from conductor.chainfile.keys import declaration, field_type, key_names
from conductor.chainfile.model import AgentItem, ComponentSpec, ValuePath
from conductor.errors import details_are_withheld
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.messages import Payload
from conductor.proxy.base import Plugin
from conductor.routing.stage import ForwardNotification, Stage
from conductor.supervision.handler_reports import HandlerReport
from conductor.transport.local_command import isolated_program

__all__ = [
    "PluginInfo",
    "PluginInfoStage",
    "Role",
    "as_isolated_process",
    "bootstrap_line",
    "failure_info",
    "parse_bootstrap_line",
    "parse_plugin_info",
    "plugin_info",
    "report_info",
]

PLUGIN_INFO: Final = "_acp-conductor/plugin"
"""Notification by which an isolated plugin describes its class to the conductor."""
T = TypeVar("T")
Role = Literal["proxy", "agent"]


class _Bootstrap(msgspec.Struct):
    """The bootstrap line. Keys of JSON objects are strings: mappings with paths as keys are lists
    of pairs."""

    keys: dict[str, Any]
    """The keys of the component with `Key.isolated`."""
    role: Role
    directory: str | None
    files: dict[str, bytes] | None
    location: SourceLocation | None
    locations: list[tuple[list[str | int], SourceLocation]]
    key_locations: list[tuple[list[str | int], SourceLocation]]
    written: list[tuple[list[str | int], InterpolatedString]]
    withheld: bool
    """Whether error details are withheld, because they go to a remote client."""


_BY_PATH = ("locations", "key_locations", "written")
_PLACES = ("directory", "files", "location")

_encoder = msgspec.json.Encoder(enc_hook=str)
_decoder = msgspec.json.Decoder(_Bootstrap)


def as_isolated_process(spec: ComponentSpec, role: Role) -> ComponentSpec:
    """The component as a process; `required` is True until the process reports its value."""
    head = bootstrap_line(spec, role)
    program = isolated_program(spec)
    return msgspec.structs.replace(program, use=None, stdin_head=head, required=True)


def bootstrap_line(spec: ComponentSpec, role: Role) -> bytes:
    """The first line of stdin of a plugin's process, newline included."""
    assert spec.use is not None
    keys = {
        key: getattr(spec, name)
        for key, name in key_names(AgentItem).items()
        if declaration(AgentItem, key).isolated
    }
    places: dict[str, Any] = {name: getattr(spec, name) for name in _PLACES}
    places |= {name: _pairs(getattr(spec, name)) for name in _BY_PATH}
    line = _Bootstrap(keys=keys, role=role, withheld=details_are_withheld(), **places)
    return _encoder.encode(line) + b"\n"


def parse_bootstrap_line(line: bytes) -> tuple[ComponentSpec, Role, bool]:
    """Parse a bootstrap line: the component, its role, and whether error details are withheld."""
    decoded = _decoder.decode(line)
    keys = {
        key_names(AgentItem)[key]: msgspec.convert(value, field_type(AgentItem, key))
        for key, value in decoded.keys.items()
    }
    places: dict[str, Any] = {name: getattr(decoded, name) for name in _PLACES}
    places |= {name: {tuple(path): of for path, of in getattr(decoded, name)} for name in _BY_PATH}
    # A failure ends the process; the restart policy is applied by the conductor outside.
    spec = ComponentSpec(on_failure="end_chain", **keys, **places)
    return spec, decoded.role, decoded.withheld


def plugin_info(plugin: Plugin) -> tuple[str, dict[str, Any]]:
    """Method and params of the notification that reports `required` to the conductor."""
    return PLUGIN_INFO, {"required": plugin.required}


def failure_info(status: str) -> tuple[str, bytes]:
    """Method and raw params that report why the process ends: "failed: OSError: no disk"."""
    return PLUGIN_INFO, _encoder.encode({"failed": status})


def report_info(handled: Sequence[HandlerReport]) -> tuple[str, bytes]:
    """Method and raw params that report which handlers have run."""
    return PLUGIN_INFO, _encoder.encode({"handled": handled})


class PluginInfo(msgspec.Struct, frozen=True):
    """Content of such a notification."""

    required: bool = True
    failed: str | None = None
    handled: tuple[HandlerReport, ...] | None = None
    """Set in a report, which has no `required`."""


class PluginInfoStage(Stage):
    """Calls `read` with the params of these notifications, which go no further."""

    __slots__ = ("_read",)

    name = "plugin info"
    received: frozenset[str] = frozenset({PLUGIN_INFO})

    def __init__(self, read: Callable[[Payload | None], None]) -> None:
        self._read = read

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        self._read(params)


def parse_plugin_info(params: Payload | None) -> PluginInfo:
    """Decode such a notification; malformed ones count as `required`."""
    try:
        return _plugin_info_decoder.decode(params or b"")
    except DECODE_ERRORS:
        return PluginInfo()


_plugin_info_decoder = msgspec.json.Decoder(PluginInfo)


def _pairs(mapping: Mapping[ValuePath, T]) -> list[tuple[list[str | int], T]]:
    return [(list(path), value) for path, value in mapping.items()]
