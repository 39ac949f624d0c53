"""YAML text in; PyYAML's nodes, with their marks, out.

Nothing is constructed of them and nothing guessed.
"""

from __future__ import annotations

from conductor.chainfile.pyyaml import (
    BaseResolver,
    Composer,
    MarkedYAMLError,
    Node,
    Parser,
    Reader,
    Scanner,
)

__all__ = ["MAX_DEPTH", "NULL", "TOO_DEEP", "NodeLoader"]

MAX_DEPTH = 50
TOO_DEEP = f"values nest at most {MAX_DEPTH} deep"
NULL = ("", "~", "null", "Null", "NULL")
"""The scalars that are nothing where they are not quoted."""

_WHITE = dict.fromkeys(map(ord, "\t\n\r"))


class NodeLoader(Reader, Scanner, Parser, Composer, BaseResolver):
    """What `yaml.BaseLoader` composes; a text that nests too deep is an error and not a crash."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise MarkedYAMLError(problem=TOO_DEEP, problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def check_printable(self, data: str) -> None:
        """The same, but a text of ASCII is told without the regular expression, which takes 4 ms to
        compile."""
        if not (data.isascii() and data.translate(_WHITE).isprintable()):
            super().check_printable(data)
