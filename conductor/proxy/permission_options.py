"""Options of a permission request: which one an answer chooses, which are the user's choice. Pure.

Agents also ask questions this way, with an option for each answer, and offer to change their mode.
An option is read by its kind, its name and the other options, for all agents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Answer", "choose_option", "offers_answers", "offers_mode"]

Answer: TypeAlias = Literal["allow_once", "allow_always", "deny"]

_KINDS: Final[Mapping[Answer, tuple[str, ...]]] = {
    "allow_once": ("allow_once",),
    "allow_always": ("allow_always", "allow_once"),
    "deny": ("reject_once", "reject_always"),
}
"""Kinds of options for an answer, in order of preference; none allows more than the answer."""
_QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"")
_BREAKS: Final = re.compile(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")
_MODE: Final = re.compile(
    r"\b(modes?|switch\w*|yolo|bypass\w*|auto\w*|everything"
    r"|all (tools?|commands?|edits?|actions?|requests?|permissions?))\b",
    re.IGNORECASE,
)
_LASTING: Final = re.compile(
    r"\b(always|all|every\w*|session|conversation|future|permanently|remember"
    r"|(don.?t|do not|never|without) ask(ing)?)\b",
    re.IGNORECASE,
)
"""Words of options that allow more than one call."""


def choose_option(answer: Answer, options: Iterable[Any], *, is_tool: bool = False) -> str | None:
    """Return the id of the option that an answer chooses; `None` if there is none.

    To allow, there must be one option of the kind, and one that rejects: several are answers to a
    question, and without one to reject nothing was asked. An option that speaks of a mode, or of
    more than the answer allows, is not chosen; `is_tool`: the request is surely about running a
    tool, so that such an option does not stand in the way of another one. Neither is an id that
    options of several kinds have. Of several options that reject, the first is chosen.
    """
    offered = list(_offered(options))
    for kind in _KINDS[answer]:
        found = {
            id: text
            for id, its_kind, text in offered
            if its_kind == kind and all(other == kind for same, other, _ in offered if same == id)
        }
        plain = [id for id, text in found.items() if not _MODE.search(text)]
        if answer == "deny":
            if found:
                return next(iter(plain or found))
            continue
        if kind == "allow_once":
            plain = [id for id in plain if not _LASTING.search(found[id])]
        if len(plain) == 1 and (is_tool or len(found) == 1) and _may_reject(offered):
            return plain[0]
    return None


def offers_answers(options: Iterable[Any]) -> bool:
    """Whether the options are answers to a question: several allow once, or none rejects."""
    offered = list(_offered(options))
    once = {id for id, kind, _ in offered if kind == "allow_once"}
    return len(once) > 1 or not _may_reject(offered)


def offers_mode(options: Iterable[Any]) -> bool:
    """Whether an option that allows once speaks of a mode of the agent, or of everything."""
    return any(kind == "allow_once" and _MODE.search(text) for _, kind, text in _offered(options))


def _offered(options: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    """Id and kind of each option, and what it says: its name without what is quoted, its id."""
    for each in options:
        if isinstance(each, Mapping) and isinstance(id := each.get("optionId"), str):
            name = _QUOTED.sub("", str(each.get("name") or ""))
            yield id, str(each.get("kind")), f"{name} {_BREAKS.sub(' ', id)}"


def _may_reject(offered: Iterable[tuple[str, str, str]]) -> bool:
    return any(kind.startswith("reject") for _, kind, _ in offered)
