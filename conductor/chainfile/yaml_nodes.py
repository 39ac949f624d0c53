"""YAML text in; PyYAML's nodes, with their marks, out. Nothing is constructed of them."""

from __future__ import annotations

from yaml import BaseLoader, MarkedYAMLError, Node

__all__ = ["MAX_DEPTH", "NULL_SCALARS", "TOO_DEEP", "NodeLoader"]

MAX_DEPTH = 50
TOO_DEEP = f"values nest at most {MAX_DEPTH} deep"
NULL_SCALARS = ("", "~", "null", "Null", "NULL_SCALARS")
"""The scalars that are nothing where they are not quoted."""


class NodeLoader(BaseLoader):
    """Composes nodes; a text that nests too deep is a `MarkedYAMLError`, not a `RecursionError`."""

    _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise MarkedYAMLError(problem=TOO_DEEP, problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node
