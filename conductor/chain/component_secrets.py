"""Secret values among a component's settings, to be masked in logs and errors. Pure.

Secret is what the chain file declares (`secrets:`), and each value that is named or looks like a
secret (`secret_detection`). A value from `${VAR}` is tested under two names: the variable's and
that of the setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conductor.chainfile.model import ComponentSpec
from conductor.secret_detection import secret_parts

__all__ = ["component_secrets"]


def component_secrets(spec: ComponentSpec, environ: Mapping[str, str]) -> list[str]:
    """The values to mask; `environ` is the environment of the conductor."""
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
        case str() if not value.isdigit():  # digits alone are a number of tokens, not a secret
            yield name, value
