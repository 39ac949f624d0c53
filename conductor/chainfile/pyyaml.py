"""What of PyYAML composes nodes, without the rest of PyYAML.

`import yaml` takes 15 ms, for loaders, dumpers and regular expressions that a chain file has no
need of; its reader, scanner, parser and composer take 4, in which an agent can start. To import
them alone they get a package of our own: whoever imports `yaml` gets PyYAML, whole.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from types import ModuleType

TYPE_CHECKING = False  # as `typing` has it, which takes 3 ms
if TYPE_CHECKING:
    from yaml.composer import Composer
    from yaml.error import MarkedYAMLError
    from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
    from yaml.parser import Parser
    from yaml.reader import Reader, ReaderError
    from yaml.resolver import BaseResolver
    from yaml.scanner import Scanner

__all__ = [
    "BaseResolver",
    "Composer",
    "MappingNode",
    "MarkedYAMLError",
    "Node",
    "Parser",
    "Reader",
    "ReaderError",
    "ScalarNode",
    "Scanner",
    "SequenceNode",
]

_PACKAGE = f"{__name__}_modules"


def _import() -> None:
    spec = PathFinder.find_spec("yaml")
    if spec is None:
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
    package = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
    package.__path__ = list(spec.submodule_search_locations or ())
    for name in ("error", "nodes", "reader", "scanner", "parser", "composer", "resolver"):
        module = importlib.import_module(f"{_PACKAGE}.{name}")
        globals().update({each: vars(module)[each] for each in __all__ if each in vars(module)})


_import()
