"""Entries in JSON settings: `{"agent_servers": {NAME: {"command": …, "args": […]}}}`.

Comments and formatting of the file stay (`jsonc`). To wrap an agent that the file already has,
only its `command` and `args` are changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import attrs

from conductor.cli.install.formats import Edit, FormatError, Launch
from conductor.cli.install.jsonc import (
    JsoncError,
    Node,
    find,
    parse,
    remove_value,
    replace_text,
    set_value,
)

__all__ = ["JsonSettings"]


@attrs.frozen
class JsonSettings:
    """`container` are the keys of the object of agents; `extra` are members of each entry.

    `is_line`: `command` is a line for a shell, without `args`.
    """

    container: tuple[str, ...]
    extra: Mapping[str, Any] = {}
    is_line: bool = False

    def install(self, text: str, launch: Launch) -> tuple[str, Sequence[Edit]]:
        edits: list[Edit] = []
        for path, value in self._changes(_parse(text), launch):
            root = _parse(text)
            if launch.wrapped is None:
                self._check_free(root, path, value)
            old = find(root, path)
            before = None if old is None else text[old.start : old.end]
            existing = sum(find(root, path[: depth + 1]) is not None for depth in range(len(path)))
            text = _set(text, path, value)
            edits.append(Edit(path, value, before, existing))
        return text, edits

    def uninstall(self, text: str, name: str, edits: Sequence[Edit]) -> str | None:
        root = _parse(text)
        if len(edits[0].path) > len(self.container) + 1:  # it was wrapped
            if find(root, (*self.container, name)) is None:
                return text
            for edit in edits:
                _check_unchanged(root, edit)
        for edit in reversed(edits):
            if edit.before is None:
                text = _remove(text, edit)
            else:
                text = replace_text(text, edit.path, edit.before)
        return text

    def snippet(self, text: str, launch: Launch) -> str:
        path = self._entry_path(launch)
        installed = find(_parse(self.install(text, launch)[0]), path)
        assert installed is not None
        return set_value("", path, installed.value)

    def _check_free(self, root: Node | None, path: tuple[str, ...], value: Any) -> None:
        node = find(root, path)
        if node is not None and node.value != value:
            name = path[-1]
            raise FormatError(
                f"there is an entry {name!r} already",
                node.start,
                f"--name gives another name; --wrap {shlex.quote(name)} puts the chain before it",
            )

    def _entry_path(self, launch: Launch) -> tuple[str, ...]:
        return (*self.container, launch.wrapped or launch.name)

    def _changes(self, root: Node | None, launch: Launch) -> list[tuple[tuple[str, ...], Any]]:
        path = self._entry_path(launch)
        if launch.wrapped is not None:
            return [((*path, key), value) for key, value in self._wrapping(root, launch).items()]
        if self.is_line:
            return [(path, {**self.extra, "command": launch.line})]
        command, *args = launch.argv
        env = {"env": dict(launch.env)} if launch.env else {}
        return [(path, {**self.extra, "command": command, "args": args, **env})]

    def _wrapping(self, root: Node | None, launch: Launch) -> Mapping[str, Any]:
        """The members of the entry to change; `root` is the file before."""
        entry = self._wrapped_entry(root, launch)
        value, argv = entry.value, launch.argv
        if "argv" in value and _is_words(value["argv"]):  # acpx 0.19
            return {"argv": [*argv, *value["argv"]]}
        command, args = value.get("command"), value.get("args", [])
        if not isinstance(command, str) or not _is_words(args):
            raise FormatError(
                f"the entry {launch.wrapped!r} has no `command` with `args` to wrap",
                entry.start,
                "agents that the editor installs itself, as from its registry, cannot be wrapped "
                "here: name the agent's command after `--` instead",
            )
        if self.is_line:
            return {"command": f"{shlex.join(argv)} {command}"}
        return {"command": argv[0], "args": [*argv[1:], command, *args]}

    def _wrapped_entry(self, root: Node | None, launch: Launch) -> Node:
        entry = find(root, self._entry_path(launch))
        if entry is not None and isinstance(entry.value, dict):
            if _is_wrapped(entry.value):
                raise FormatError(f"the entry {launch.wrapped!r} already runs acp-conductor")
            return entry
        agents = find(root, self.container)
        names = list(agents.value) if agents is not None and isinstance(agents.value, dict) else []
        known = f"it has {', '.join(map(repr, names))}" if names else "it has no agents"
        place = None if agents is None else agents.start
        raise FormatError(
            f"`{'.'.join(self.container)}` has no entry {launch.wrapped!r}",
            place,
            f"{known}; to add one, name the agent's command after `--`",
        )


def _is_wrapped(value: Mapping[str, Any]) -> bool:
    """Whether an entry starts acp-conductor, of this or another installation."""
    command = value.get("command")
    words = value.get("argv") or [command, *(value.get("args") or [])]
    with suppress(ValueError):  # an unbalanced quote
        words = shlex.split(command) if isinstance(command, str) and " " in command else words
    program = PurePath(str(words[0] or "")).name
    options = [word for word in words[1:4] if word != "-P"]
    return program == "acp-conductor" or options[:2] == ["-m", "conductor"]


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _parse(text: str) -> Node | None:
    try:
        root = parse(text)
    except JsoncError as exc:
        raise FormatError(f"not valid JSON: {exc}", exc.index, "correct the file first") from None
    if root is not None and not isinstance(root.value, dict):
        raise FormatError("expected an object", root.start, "the settings are `{ … }`")
    return root


def _set(text: str, path: Sequence[str], value: Any) -> str:
    try:
        return set_value(text, path, value)
    except JsoncError as exc:
        raise FormatError(str(exc), exc.index, f"`{'.'.join(path[:-1])}` holds agents") from None


def _check_unchanged(root: Node | None, edit: Edit) -> None:
    node = find(root, edit.path)
    if node is None or node.value != edit.value:
        raise FormatError(
            f"{'.'.join(edit.path)} has been changed since",
            None if node is None else node.start,
            "write the agent's own command there by hand",
        )


def _remove(text: str, edit: Edit) -> str:
    """Remove a value, and the objects around it that were created for it and are empty now."""
    for depth in range(len(edit.path), edit.existing, -1):
        node = find(_parse(text), edit.path[:depth])
        if node is not None and (depth == len(edit.path) or node.value == {}):
            text = remove_value(text, edit.path[:depth])
    return text
