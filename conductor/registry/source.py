"""Sources of a registry: the shipped snapshot, a refreshed copy, a file, or a URL.

`load_registry` uses no network. A registry at a URL is usable after `refresh_registry`, which keeps
a copy in the store. The official registry is usable at once, from the snapshot that is shipped; its
refreshed copy takes over when it is newer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from conductor.errors import RegistryError
from conductor.files import read_own, read_regular
from conductor.json_values import decode_value
from conductor.registry.download import display_url
from conductor.registry.entries import Registry, parse_registry
from conductor.registry.pins import REGISTRY_VARIABLE, digest_of
from conductor.registry.store import replace_file, store_path

__all__ = [
    "OFFICIAL_URL",
    "NotFetched",
    "is_url",
    "load_registry",
    "refresh_registry",
]

OFFICIAL_URL: Final = "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json"
MAX_REGISTRY_BYTES: Final = 16 << 20


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
