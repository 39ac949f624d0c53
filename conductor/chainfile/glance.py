"""The programs that a chain file names, at a glance: before there is time to read it.

An agent takes 300 ms to start, and to import what reads a chain file with care takes us 50; so
programs are started that somebody will want for sure, and the file is read while they start. What
takes more than a glance (nested chains, other machines) is left out, and where what is looked at is
not plain, nothing is told of the whole file. What is not looked at may be wrong: `loader` says so,
and whoever started something that is not in the chain ends it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from conductor.chainfile.nodes import NULL, NodeLoader
from conductor.chainfile.paths import absolute, from_working_directory
from conductor.chainfile.pyyaml import MappingNode, Node, ScalarNode, SequenceNode

__all__ = ["Program", "programs"]

Program = tuple[tuple[str, ...], dict[str, str], str | None]
"""The argv, the whole environment and the working directory of a program, as `build` has them."""

_MAX_BYTES = 16 * 1024
_MAX_COMPONENTS = 65
_MAX_VALUES = 1000
"""How many an alias may repeat them to, in all components."""
_BOOLEANS = {"true": True, "false": False}
"""Other spellings take more than a glance."""


def programs(path: str, environ: Mapping[str, str]) -> list[Program]:
    """What is to be started for the components of a file, the agent last; nothing without one."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return []
        return list(
            _Glance(os.path.dirname(from_working_directory(path)), environ).programs(data.decode())
        )
    except Exception:  # whatever it is: the loader says it, who knows places and reasons
        return []


class _Unusual(Exception):
    """More than a glance is needed."""


class _Glance:
    """One look at one file, which counts what it looks at."""

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._environ = environ
        self._values = 0

    def programs(self, text: str) -> Iterator[Program]:
        chain = self._mapping(NodeLoader(text).get_single_node())
        components = [*self._items(chain.get("proxies")), chain["agent"]]
        if self._text(chain["version"]) != "1" or len(components) > _MAX_COMPONENTS:
            raise _Unusual
        for node in components:
            component = self._mapping(node)
            if "run" in component and "ssh" not in component:
                yield self._program(component)

    def _program(self, component: Mapping[str, Node]) -> Program:
        run, cwd = component["run"], component.get("cwd")
        if isinstance(run, ScalarNode):
            argv = [self._text(run)]
            if argv[0].split() != argv:
                raise _Unusual
        else:
            argv = [self._text(word) for word in self._items(run)]
        if "/" in argv[0]:
            argv[0] = self._absolute(argv[0])
        env = {
            name: self._text(value) for name, value in self._mapping(component.get("env")).items()
        }
        inherits = "inherit_env" not in component or _BOOLEANS[self._text(component["inherit_env"])]
        return (
            tuple(argv),
            {**(self._environ if inherits else {}), **env},
            self._absolute(self._text(cwd)) if cwd else None,
        )

    def _absolute(self, path: str) -> str:
        return absolute(self._directory, path)

    def _mapping(self, node: Node | None) -> dict[str, Node]:
        if node is None:
            return {}
        if not isinstance(node, MappingNode):
            raise _Unusual
        found = {self._word(key): value for key, value in node.value}
        if len(found) < len(node.value) or "<<" in found:
            raise _Unusual
        return found

    def _items(self, node: Node | None) -> list[Node]:
        if node is not None and not isinstance(node, SequenceNode):
            raise _Unusual
        return list(node.value) if node else []

    def _text(self, node: Node) -> str:
        """A value, with what its references refer to."""
        text = self._word(node)
        if isinstance(node, ScalarNode) and node.style is None and text in NULL:
            raise _Unusual
        if "$" not in text:
            return text
        from conductor.chainfile.interpolation import expand

        expanded = expand(text, self._environ)
        if expanded.bad:
            raise _Unusual
        return expanded.text

    def _word(self, node: Node) -> str:
        """A key, or a value as it is written."""
        self._values += 1
        if self._values > _MAX_VALUES:
            raise _Unusual
        if not isinstance(node, ScalarNode) or node.tag != "tag:yaml.org,2002:str":
            raise _Unusual
        word: str = node.value
        return word
