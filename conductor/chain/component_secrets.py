"""What of a component's settings must not leave in a log or an error.

Of everything that the chain file gives it: what it declares (`secrets:`), and what is called or
looks like a secret (`secret_detection`). A value that came by `${VAR}` has two names, that of the
variable and that of its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conductor.chainfile.model import ComponentSpec
from conductor.secret_detection import secret_parts

__all__ = ["component_secrets"]


def component_secrets(spec: ComponentSpec, environ: Mapping[str, str]) -> list[str]:
    """The values to mask; `environ` is the conductor's own."""
    found = [environ[name] for name in spec.secrets if name in environ]
    for name, value in _named_values(spec):
        found += [value] if name in spec.secrets else secret_parts(name, value)
    return found


def _named_values(spec: ComponentSpec) -> Iterator[tuple[str, str]]:
    yield from spec.env.items()
    yield from spec.headers.items()
    yield from _options("", spec.options)
    if spec.connect is not None:
        from urllib.parse import parse_qsl, urlsplit

        yield "connect", spec.connect
        yield from parse_qsl(urlsplit(spec.connect).query)
    for path, written in spec.written.items():
        place = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
        for variable, value in zip(written.names, written.values, strict=True):
            yield variable, value
            yield place, value


def _options(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _options(str(key), inner)
        case list():
            for inner in value:
                yield from _options(name, inner)
        case str() if not value.isdigit():  # a number of tokens
            yield name, value
