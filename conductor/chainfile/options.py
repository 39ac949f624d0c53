"""Structure the options of a component (`with:`) as an instance of its plugin class.

The types of the class's fields decide how options are read; its validators check them. The
component comes from a chain file or from the command line.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from conductor.chainfile.attrs_fields import attrs_hook
from conductor.chainfile.converter import make_converter
from conductor.chainfile.diagnostics import Diagnostic, in_file_order
from conductor.chainfile.model import ComponentSpec
from conductor.chainfile.paths import working_directory
from conductor.chainfile.source_location import SourceLocation
from conductor.chainfile.type_dispatch import Converter, Hook
from conductor.chainfile.value_errors import (
    InvalidValue,
    ValueContext,
    ValueIssue,
    path_label,
    to_diagnostic,
)
from conductor.errors import ChainFileError

__all__ = ["structure"]


def structure(component: ComponentSpec, cls: Any) -> Any:
    """See `conductor.chainfile.structure_options`."""
    hook = _hook(cls, component.directory or working_directory())
    try:
        return hook(dict(component.options))
    except InvalidValue as mistakes:
        values = _values(component)
        diagnostics = [_problem(found.below("with"), component, values) for found in mistakes.found]
    raise ChainFileError(in_file_order(diagnostics))


@lru_cache(maxsize=64)
def _hook(cls: type, directory: str) -> Hook:
    """Cached: creating it takes 0.1 ms, and `serve` creates an instance for every client."""
    return attrs_hook(cls, _converter(directory), "option")


@lru_cache(maxsize=16)
def _converter(directory: str) -> Converter:
    """Cached: creating it takes 0.4 ms."""
    return make_converter(directory, "option")


def _values(component: ComponentSpec) -> ValueContext:
    fallback = component.location or SourceLocation.whole("<command line>")
    # Issues of the options as a whole are located at `use:`.
    whole = component.locations.get(("use",), fallback)
    return ValueContext(
        data={"with": component.options},
        locations={**component.locations, ("with",): whole},
        keys=component.key_locations,
        written=component.written,
        fallback=fallback,
    )


def _problem(mistake: ValueIssue, component: ComponentSpec, values: ValueContext) -> Diagnostic:
    problem = to_diagnostic(mistake, values, path_label(mistake.path[1:]))
    if component.location is None:
        return msgspec.structs.replace(problem, message=f"{component.name}: {problem.message}")
    return problem
