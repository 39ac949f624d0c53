"""The programs that a chain file names, at a glance: before there is time to read it.

An agent takes 300 ms to start, and to import what reads a chain file with care takes us 50; so
programs are started that somebody will want for sure, and the file is read while they start. What
takes more than a glance (nested chains, other machines) is left out, and of a file in which
anything is unusual nothing is told. `loader` says what is wrong with it; whoever started something
that is not in the chain ends it again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from conductor.chainfile.nodes import NodeLoader

__all__ = ["Program", "programs"]

Program = tuple[tuple[str, ...], dict[str, str], str | None]
"""The argv, the whole environment and the working directory of a program, as `build` has them."""

_MAX_BYTES = 16 * 1024
_NOTHING = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "false": False}


def programs(path: str, environ: Mapping[str, str]) -> list[Program]:
    """What is to be started for the components of a file, the agent last; nothing without one."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # what can be read once is not ours to read
            return []
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return []
        return list(_programs(data.decode(), os.path.dirname(os.path.abspath(path)), environ))
    except Exception:  # whatever it is: the loader says it, who knows places and reasons
        return []


def _programs(text: str, directory: str, environ: Mapping[str, str]) -> Iterator[Program]:
    chain = _mapping(NodeLoader(text).get_single_node())
    if _text(chain["version"], {}) != "1":
        raise _Unusual
    for node in (*_items(chain.get("proxies")), chain["agent"]):
        component = _mapping(node)
        if "run" in component and "ssh" not in component:
            yield _program(component, directory, environ)


def _program(component: Mapping[str, Node], directory: str, environ: Mapping[str, str]) -> Program:
    run, cwd = component["run"], component.get("cwd")
    alone = isinstance(run, ScalarNode)
    argv = [_text(word, environ) for word in ([run] if alone else _items(run))]
    if alone and argv[0].split() != argv:
        raise _Unusual
    if "/" in argv[0]:
        argv[0] = os.path.normpath(os.path.join(directory, argv[0]))
    inherits = "inherit_env" not in component or _BOOLEANS[_text(component["inherit_env"], {})]
    env = {name: _text(value, environ) for name, value in _mapping(component.get("env")).items()}
    return (
        tuple(argv),
        {**(environ if inherits else {}), **env},
        os.path.normpath(os.path.join(directory, _text(cwd, environ))) if cwd else None,
    )


class _Unusual(Exception):
    """More than a glance is needed."""


def _mapping(node: Node | None) -> dict[str, Node]:
    if node is None:
        return {}
    if not isinstance(node, MappingNode):
        raise _Unusual
    found = {_text(key, {}): value for key, value in node.value}
    if len(found) < len(node.value):
        raise _Unusual
    return found


def _items(node: Node | None) -> list[Node]:
    if node is not None and not isinstance(node, SequenceNode):
        raise _Unusual
    return list(node.value) if node else []


def _text(node: Node, environ: Mapping[str, str]) -> str:
    if not isinstance(node, ScalarNode) or not node.tag.endswith(":str"):
        raise _Unusual
    text: str = node.value
    if node.style is None and text in _NOTHING:
        raise _Unusual
    if "$" not in text:
        return text
    from conductor.chainfile.interpolation import expand

    expanded = expand(text, environ)
    if expanded.bad:
        raise _Unusual
    return expanded.text
