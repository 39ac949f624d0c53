"""An isolated plugin (`isolate: true`): what its process is told, and what it tells in turn.

The conductor neither imports the plugin's module nor makes an instance: both happen in the
plugin's process (`python -m conductor.proxy.standalone`). What that needs, the options among it, is
the first line of its stdin, so that nothing of it is in an argument, or in an environment that its
children inherit. The places of the chain file go with it, so mistakes are reported by the same
code, with the same text, as those of a plugin in the conductor's process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from conductor.chainfile.model import ComponentSpec, InterpolatedString, ValuePath
from conductor.chainfile.source_location import SourceLocation
from conductor.errors import details_are_withheld
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.messages import Payload
from conductor.proxy.base import Plugin
from conductor.routing.control import PLUGIN_INFO

__all__ = [
    "News",
    "Role",
    "about_failure",
    "as_isolated_process",
    "bootstrap_line",
    "parse_bootstrap_line",
    "plugin_info",
    "read_about",
]

T = TypeVar("T")
Role = Literal["proxy", "agent"]


class _Bootstrap(msgspec.Struct):
    """The keys of a component that a plugin's process has to know, and how it is started.

    JSON objects have no keys but strings: mappings with paths as keys are lists of pairs."""

    name: str
    use: str
    role: Role
    options: dict[str, Any]
    env: dict[str, str]
    secrets: tuple[str, ...]
    directory: str | None
    start_timeout: float
    stop_timeout: float
    location: SourceLocation | None
    locations: list[tuple[list[str | int], SourceLocation]]
    key_locations: list[tuple[list[str | int], SourceLocation]]
    written: list[tuple[list[str | int], InterpolatedString]]
    withheld: bool
    """Whether its errors go to a remote client, and tell nothing of this machine."""


_BY_PATH = ("locations", "key_locations", "written")
_OF_START = ("role", "withheld")
_VALUES = [key for key in _Bootstrap.__struct_fields__ if key not in (*_BY_PATH, *_OF_START)]
"""The keys of a component that are sent as they are."""

_encoder = msgspec.json.Encoder(enc_hook=str)
_decoder = msgspec.json.Decoder(_Bootstrap)


def as_isolated_process(spec: ComponentSpec, role: Role) -> ComponentSpec:
    """The plugin of a component as a program; it counts as required until it says otherwise."""
    assert spec.use is not None
    env = dict(spec.env)
    if not spec.inherit_env:
        env.setdefault("PATH", os.environ.get("PATH", os.defpath))
    # -P: the working directory, somebody's project perhaps, is not where modules are looked for.
    run = (sys.executable, "-P", "-m", "conductor.proxy.standalone", spec.use)
    head = bootstrap_line(spec, role)
    return msgspec.structs.replace(spec, run=run, env=env, use=None, stdin_head=head, required=True)


def bootstrap_line(spec: ComponentSpec, role: Role) -> bytes:
    """What a process has to know to import and make the plugin of a component, as a line."""
    assert spec.use is not None
    values: dict[str, Any] = {key: getattr(spec, key) for key in _VALUES}
    by_path: dict[str, Any] = {key: _pairs(getattr(spec, key)) for key in _BY_PATH}
    line = _Bootstrap(role=role, withheld=details_are_withheld(), **values, **by_path)
    return _encoder.encode(line) + b"\n"


def parse_bootstrap_line(line: bytes) -> tuple[ComponentSpec, Role, bool]:
    """The component that the first line describes, for the plugin's own process; its role, and
    whether details of errors are withheld."""
    decoded = _decoder.decode(line)
    values: dict[str, Any] = {key: getattr(decoded, key) for key in _VALUES}
    by_path: dict[str, Any] = {
        key: {tuple(path): of for path, of in getattr(decoded, key)} for key in _BY_PATH
    }
    # The end of the process, too; what follows is decided outside.
    spec = ComponentSpec(on_failure="end_chain", **values, **by_path)
    return spec, decoded.role, decoded.withheld


def plugin_info(plugin: Plugin) -> tuple[str, dict[str, Any]]:
    """The notification by which the process says what the conductor has to know of the class."""
    return PLUGIN_INFO, {"required": plugin.required}


def about_failure(status: str) -> tuple[str, bytes]:
    """The notification that says why the process is about to end: "failed: OSError: no disk"."""
    return PLUGIN_INFO, _encoder.encode({"failed": status})


class News(msgspec.Struct, frozen=True):
    """What such a notification says."""

    required: bool = True
    failed: str | None = None


def read_about(params: Payload | None) -> News:
    """The chain must not go on without a plugin of which nothing is known."""
    try:
        return _about_decoder.decode(params or b"")
    except DECODE_ERRORS:
        return News()


_about_decoder = msgspec.json.Decoder(News)


def _pairs(mapping: Mapping[ValuePath, T]) -> list[tuple[list[str | int], T]]:
    return [(list(path), value) for path, value in mapping.items()]
