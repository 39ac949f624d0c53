"""A component's options in, an instance of its class out.

The class is a proxy's, often a third party's: its own types say what the options mean, and its
validators what is wrong with them. The component may come from a file or from a command line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cattrs
import msgspec

from conductor.chainfile.classes import class_hook
from conductor.chainfile.mistakes import Mistake, Mistakes, Values, explain, label_of
from conductor.chainfile.model import Component
from conductor.chainfile.paths import working_directory
from conductor.chainfile.places import Place
from conductor.chainfile.problems import Problem, in_file_order
from conductor.chainfile.structure import converter
from conductor.errors import ChainFileError

__all__ = ["structure"]


def structure(component: Component, cls: Any) -> Any:
    """See `conductor.chainfile.structure_options`."""
    hook = _hook(cls, component.directory or working_directory())
    try:
        return hook(dict(component.options), cls)
    except Mistakes as mistakes:
        values = _values(component)
        problems = [_problem(found.below("with"), component, values) for found in mistakes.found]
    raise ChainFileError(in_file_order(problems))


@lru_cache(maxsize=64)
def _hook(cls: type, directory: str) -> Callable[[Any, Any], Any]:
    """Takes 0.1 ms to make; `serve` makes an instance for every client."""
    return class_hook(cls, _converter(directory), "option")


@lru_cache(maxsize=16)
def _converter(directory: str) -> cattrs.Converter:
    """Takes 0.4 ms to make."""
    return converter(directory, "option")


def _values(component: Component) -> Values:
    fallback = component.place or Place.whole("<command line>")
    # What is wrong with the options as a whole is shown where the class is named.
    whole = component.places.get(("use",), fallback)
    return Values(
        data={"with": component.options},
        places={**component.places, ("with",): whole},
        keys=component.key_places,
        written=component.written,
        fallback=fallback,
    )


def _problem(mistake: Mistake, component: Component, values: Values) -> Problem:
    problem = explain(mistake, values, label_of(mistake.path[1:]))
    if component.place is None:
        return msgspec.structs.replace(problem, message=f"{component.name}: {problem.message}")
    return problem
