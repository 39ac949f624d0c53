"""Sources of a registry: the shipped snapshot, a refreshed copy, a file, or a URL.

`load_registry` uses no network. A registry at a URL is usable after `refresh_registry`, which keeps
a copy in the store. The official registry is usable at once, from the snapshot that is shipped; its
refreshed copy takes over when it is newer.

The format is that of the ACP registry: a JSON document with a list of agents. Unknown members are
ignored, and an entry that does not fit is left out: one bad entry must not make the others
unusable. Proxies have the same form as agents; a registry may list them below `extensions` or
`proxies`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from conductor.chainfile.diagnostics import closest_match
from conductor.errors import RegistryError
from conductor.files import read_own, read_regular
from conductor.json_values import decode_value
from conductor.registry.download import display_url
from conductor.registry.pins import REGISTRY_VARIABLE, BinaryTarget, digest_of
from conductor.registry.store import replace_file, store_path

__all__ = [
    "OFFICIAL_URL",
    "Distribution",
    "Entry",
    "Kind",
    "NotFetched",
    "PackageDistribution",
    "Registry",
    "is_url",
    "load_registry",
    "parse_registry",
    "refresh_registry",
]

OFFICIAL_URL: Final = "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json"
MAX_REGISTRY_BYTES: Final = 16 << 20
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


class NotFetched(RegistryError):
    """A registry at a URL has no copy in the store yet."""


class _Copy(msgspec.Struct):
    """A refreshed copy of a registry."""

    url: str
    date: str
    registry: msgspec.Raw


class _Dated(msgspec.Struct):
    """The member that only the shipped snapshot has."""

    date: str


def load_registry(source: str | None, files: Mapping[str, bytes] | None = None) -> Registry:
    """The registry; `source` is a path, a URL, or None for the default. A path among `files` is not
    read. Raises `RegistryError`."""
    if source is not None and files is not None and source in files:
        return parse_registry(files[source], source, "as trusted")
    source = source or os.environ.get(REGISTRY_VARIABLE) or None
    if source is None:
        return _official()
    if not is_url(source):
        return _from_file(source)
    copy = _copy_of(source)
    if copy is None:
        message = f"the registry {display_url(source)} has not been fetched yet"
        help = f"`acp-conductor registry refresh --registry {display_url(source)}` fetches it"
        raise NotFetched(message, help)
    return parse_registry(bytes(copy.registry), display_url(source), copy.date)


def refresh_registry(source: str | None) -> Registry:
    """Fetch a registry from its URL and keep a copy; a file is only read."""
    source = source or os.environ.get(REGISTRY_VARIABLE) or OFFICIAL_URL
    if not is_url(source):
        return _from_file(source)
    from conductor.registry.download import fetch_bytes

    data = fetch_bytes(source, MAX_REGISTRY_BYTES)
    date = datetime.now(UTC).date().isoformat()
    registry = parse_registry(data, display_url(source), date)
    copy = _Copy(url=source, date=date, registry=msgspec.Raw(data))
    replace_file(_copy_path(source), msgspec.json.encode(copy))
    return registry


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


def is_url(source: str) -> bool:
    return bool(urlsplit(source).scheme) and "://" in source


def _official() -> Registry:
    data = files("conductor.registry").joinpath("snapshot.json").read_bytes()
    date = decode_value(data, type=_Dated).date
    copy = _copy_of(OFFICIAL_URL)
    if copy is not None and copy.date >= date:
        return parse_registry(bytes(copy.registry), "ACP registry", copy.date)
    return parse_registry(data, "shipped snapshot of the ACP registry", date)


def _from_file(path: str) -> Registry:
    try:
        data, changed = read_regular(path, MAX_REGISTRY_BYTES), os.stat(path).st_mtime
    except OSError as exc:
        raise RegistryError(f"the registry {path} cannot be read: {exc.strerror}") from None
    return parse_registry(data, path, datetime.fromtimestamp(changed, UTC).date().isoformat())


def _copy_of(url: str) -> _Copy | None:
    try:
        copy = decode_value(read_own(_copy_path(url)), type=_Copy)
    except (OSError, msgspec.DecodeError):
        return None
    return copy if copy.url == url else None


def _copy_path(url: str) -> Path:
    return store_path("registries") / f"{digest_of(url)[:32]}.json"


def _items(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []
