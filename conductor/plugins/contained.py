"""The proxies that a plugin contains (`Proxy.proxies`), each a component of its own behind it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

from conductor.errors import StartError, describe
from conductor.proxy.base import Plugin, Proxy

__all__ = ["with_contained"]

_MAX_DEPTH: Final = 16


def with_contained(
    name: str, plugin: Plugin, location: str | None = None
) -> list[tuple[str, Plugin]]:
    """Return the plugin and all proxies that it contains, with names, in the order of the chain.

    A contained proxy is named after its container and its class: `rules/Usage`. Raises
    `StartError`, with `location` in the chain file, if `proxies()` fails or returns anything else
    than new proxies.
    """
    found = [(name, plugin)]
    _add(found, name, plugin, location, 1)
    return found


def _add(
    found: list[tuple[str, Plugin]], name: str, plugin: Plugin, location: str | None, depth: int
) -> None:
    method = f"{type(plugin).__name__}.proxies()"
    if depth > _MAX_DEPTH:
        raise StartError(name, f"{method} never ends: the proxy contains itself", location=location)
    names: set[str] = set()
    for proxy in _call(name, plugin, method, location):
        problem = _problem(proxy, [each for _, each in found])
        if problem is not None:
            raise StartError(name, f"{method} returned {problem}", location=location)
        own_name, number = f"{name}/{type(proxy).__name__}", 1
        while own_name in names:
            number += 1
            own_name = f"{name}/{type(proxy).__name__}-{number}"
        names.add(own_name)
        found.append((own_name, proxy))
        _add(found, own_name, proxy, location, depth + 1)


def _call(name: str, plugin: Plugin, method: str, location: str | None) -> Sequence[Any]:
    if not inspect.isfunction(getattr(type(plugin), "proxies", None)):  # an agent, or an option
        return ()
    try:
        return list(plugin.proxies())  # type: ignore[attr-defined]
    except BaseException as exc:  # code of the plugin may raise anything
        raise StartError(name, f"{method} failed: {describe(exc)}", location=location) from exc


def _problem(proxy: Any, found: Sequence[Plugin]) -> str | None:
    """Describe what is wrong with an element of the result of `proxies()`."""
    if isinstance(proxy, type):
        return f"the class {proxy.__name__}: write {proxy.__name__}(…)"
    if not isinstance(proxy, Proxy):
        return f"{proxy!r}, which is not a proxy"
    if any(each is proxy for each in found):
        return f"one {type(proxy).__name__} twice: write {type(proxy).__name__}(…) for each"
    if hasattr(proxy, "_acp_runtime"):
        return (
            f"a {type(proxy).__name__} that runs in another chain: proxies() makes new objects, "
            "it does not return those of the class or the module"
        )
    return None
