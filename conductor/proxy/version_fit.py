"""Selection of a proxy's handlers by the protocol version that `initialize` negotiated.

A handler with a type of `conductor.schema.v1` as annotation is for version 1, one with a type of
`conductor.schema.v2` for version 2, all others are for every version. So a class may have a typed
handler of one method for each version. `versions = {1}` in a class is about the whole proxy.

Handlers of `initialize` always run: the version is known once they have returned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from conductor.proxy.handlers import collect_handlers, marked_handlers
from conductor.proxy.middleware import Handler
from conductor.proxy.tool_handlers import with_tools
from conductor.schema import METHODS, METHODS_BY_VERSION

__all__ = ["VersionFit", "handlers_of", "version_fit"]


@attrs.frozen
class VersionFit:
    """The handlers of a proxy class that run in one protocol version, and those that do not."""

    handlers: tuple[Handler, ...]
    """The handlers that run."""
    left_out: tuple[Handler, ...] = ()
    """Handlers for another version, of methods without a typed handler for this one."""
    is_bypassed: bool = False
    """Whether the version is not in `versions` of the class: no handler runs."""

    @property
    def is_complete(self) -> bool:
        """Whether everything that the author wrote runs."""
        return not self.left_out and not self.is_bypassed

    def problem(self, cls: Any, version: int) -> str:
        """The reason why a required proxy refuses the version."""
        negotiated = f"client and agent speak version {version} of the protocol"
        if self.is_bypassed:
            supported = " and ".join(str(each) for each in sorted(cls.versions))
            return f"{negotiated}, and {cls.__name__} is for version {supported}"
        first = self.left_out[0]
        return (
            f"{negotiated}, and the handler of {first.method!r} at {first.location} is for version "
            f"{first.version}: add a handler with a type of conductor.schema.v{version}, or one "
            "with plain params"
        )


def handlers_of(cls: Any, version: int | None = None) -> tuple[Handler, ...]:
    """Return the handlers of a plugin class for a version; for all with `None`."""
    return with_tools(cls, collect_handlers(cls, version))


def version_fit(cls: Any, version: int) -> VersionFit:
    """Return the fit of a plugin class; kept with the class, for the next chain."""
    kept: dict[int, VersionFit] = cls._acp_version_fits
    if version not in kept:
        kept[version] = _version_fit(cls, version)
    return kept[version]


def _version_fit(cls: Any, version: int) -> VersionFit:
    if cls.versions is not None and version not in cls.versions:
        return VersionFit((), is_bypassed=True)
    marked = list(marked_handlers(cls))
    if all(handler.version in (None, version) for handler in marked):
        return VersionFit(cls._acp_handlers)
    return VersionFit(handlers_of(cls, version), tuple(_left_out(marked, version)))


def _left_out(marked: Iterable[Handler], version: int) -> Iterable[Handler]:
    marked = [handler for handler in marked if handler.version is not None]
    replaced = {handler.method for handler in marked if handler.version == version}
    occurring = METHODS_BY_VERSION.get(version, METHODS).keys() - replaced - {"initialize"}
    return (
        handler for handler in marked if handler.version != version and handler.method in occurring
    )
