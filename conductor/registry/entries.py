"""The format of the ACP registry: a JSON document with a list of agents. Pure.

Unknown members are ignored, and an entry that does not fit the format is left out: one bad entry of
a registry must not make the others unusable. Proxies have the same form as agents; a registry may
list them below `extensions` or `proxies`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from conductor.chainfile.diagnostics import closest_match
from conductor.errors import RegistryError
from conductor.json_values import decode_value
from conductor.registry.pins import BinaryTarget

__all__ = [
    "Distribution",
    "Entry",
    "Kind",
    "PackageDistribution",
    "Registry",
    "parse_registry",
]

Kind: TypeAlias = Literal["binary", "npx", "uvx"]

_ID: Final = re.compile(r"[a-z][a-z0-9-]*")
_LISTS: Final = ("agents", "extensions", "proxies")


class PackageDistribution(msgspec.Struct, frozen=True):
    """A package of npm or PyPI, with or without a version: `@scope/name@1.2.3`, `name==1.2.3`."""

    package: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class Distribution(msgspec.Struct, frozen=True):
    """The ways in which an agent is distributed; `binary` by platform."""

    binary: Mapping[str, BinaryTarget] = {}
    npx: PackageDistribution | None = None
    uvx: PackageDistribution | None = None


class Entry(msgspec.Struct, frozen=True):
    """An agent or a proxy of a registry."""

    id: str
    version: str
    distribution: Distribution
    name: str = ""
    description: str = ""
    repository: str | None = None
    license: str | None = None

    def kinds(self, target: str) -> Iterator[Kind]:
        """The kinds that this platform can use, preferred ones first.

        Raises `RegistryError`, which lists the platforms, if there is none.
        """
        found: list[Kind] = ["binary"] if target in self.distribution.binary else []
        found += ["npx"] if self.distribution.npx is not None else []
        found += ["uvx"] if self.distribution.uvx is not None else []
        if not found:
            platforms = ", ".join(self.distribution.binary) or "no platform"
            raise RegistryError(
                f"`{self.id}` has no program for this platform, {target}; it has: {platforms}",
                "start it with `run:` if you can build it yourself",
            )
        yield from found


class Registry(msgspec.Struct, frozen=True):
    """The entries of a registry by id. `origin` and `date` say which registry it is."""

    entries: Mapping[str, Entry]
    origin: str
    date: str

    def find(self, name: str) -> Entry:
        """The entry with this id. Raises `RegistryError`, which names similar ids."""
        entry = self.entries.get(name)
        if entry is not None:
            return entry
        near = closest_match(name, self.entries)
        containing = [id for id in self.entries if len(name) > 2 and (name in id or id in name)]
        similar = list(dict.fromkeys([*([near] if near else []), *containing]))[:4]
        help = "`acp-conductor registry list` lists the names"
        if name == "test-agent":
            help = f"the built-in agent is written `use: test-agent`; {help}"
        elif similar:
            help = f"did you mean {' or '.join(f'`{id}`' for id in similar)}? {help}"
        help += ", `acp-conductor registry refresh` fetches the newest"
        raise RegistryError(f"the registry ({self.described}) has no `{name}`", help)

    @property
    def described(self) -> str:
        return f"{self.origin}, {self.date}"


def parse_registry(data: bytes, origin: str, date: str) -> Registry:
    """The registry in a JSON document. Raises `RegistryError` if it is not one."""
    try:
        document = decode_value(data)
    except msgspec.DecodeError as exc:
        raise RegistryError(f"the registry {origin} is not JSON: {exc}") from None
    if not isinstance(document, dict) or not isinstance(document.get("agents"), list):
        raise RegistryError(
            f"the registry {origin} is not an ACP registry: it has no list `agents`"
        )
    entries: dict[str, Entry] = {}
    for each in (item for name in _LISTS for item in _items(document, name)):
        try:
            entry = msgspec.convert(each, Entry)
        except msgspec.ValidationError:
            continue
        if _ID.fullmatch(entry.id):
            entries.setdefault(entry.id, entry)
    return Registry(entries, origin, date)


def _items(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []
