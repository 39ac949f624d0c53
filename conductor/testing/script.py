"""Scripts of a `FakeAgent`: their types, and mistakes in them as errors that name the step.

A mistake is raised where the script is given to the agent, if it can be seen there, else when the
step is performed. Pure.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from conductor.errors import RequestError

__all__ = [
    "ScriptError",
    "ScriptedTurn",
    "TurnStep",
    "check_turn",
    "function_place",
    "noted",
    "step_label",
]

TurnStep: TypeAlias = (
    str | Mapping[str, Any] | RequestError | Callable[[str], Awaitable[object] | None]
)
"""One step of a scripted turn: text to send as a message chunk, an update to send, the result of
the prompt (a mapping with `stopReason`) or its error, or a function, async or not, called with the
session id."""

ScriptedTurn: TypeAlias = Sequence[TurnStep]

_STEPS: Final = (
    'A step is a text, an update such as {"sessionUpdate": "plan", "entries": []}, the end of the '
    'turn {"stopReason": "refusal"}, a RequestError, or a function, async or not, which gets the '
    "session id"
)
_SHOWN_LENGTH: Final = 60


class ScriptError(ValueError):
    """A mistake in the script of a `FakeAgent`: says which step it is and what to write instead."""


def check_turn(turn: object, number: int) -> None:
    """Raise `ScriptError` if a scripted turn cannot be played; `number` counts from 1."""
    if isinstance(turn, str | Mapping | RequestError) or callable(turn):
        raise ScriptError(
            f"turn {number} of the FakeAgent is {_shown(turn)}, which is a step: a turn is a list "
            "of steps. Write turns=[[…]], with a list for each turn"
        )
    if not isinstance(turn, Sequence):
        raise ScriptError(
            f"turn {number} of the FakeAgent is {_shown(turn)}. It must be a list of steps. "
            f"{_STEPS}"
        )
    for index, step in enumerate(turn):
        if (mistake := _mistake(step)) is not None:
            raise ScriptError(f"{step_label(index, number)} {mistake}")


def step_label(index: int, turn: int, step: object = None) -> str:
    """A step in a message; its index counts from 0, the turn from 1."""
    place = function_place(step) if callable(step) else None
    return f"step {index + 1} of turn {turn} of the FakeAgent" + (f" ({place})" if place else "")


@contextmanager
def noted(label: Callable[[], str]) -> Iterator[None]:
    """Add the step to what its function raises; a `RequestError` is the answer to the prompt."""
    try:
        yield
    except (RequestError, ScriptError):
        raise
    except Exception as exc:
        exc.add_note(f"Raised in {label()}")
        raise


def function_place(function: object) -> str | None:
    """Name, file and line of a function written in Python; None for others."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return None
    return f"{code.co_name}, {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _mistake(step: object) -> str | None:
    """The mistake in a step; None if it can be played."""
    if isinstance(step, str | RequestError):
        return None
    if isinstance(step, Mapping):
        if "sessionUpdate" in step or "stopReason" in step:
            return None
        return (
            f"is {_shown(step)}, which has neither 'sessionUpdate', as an update has, nor "
            f"'stopReason', as the end of a turn. {_STEPS}"
        )
    if inspect.iscoroutine(step):
        step.close()
        return f"is a coroutine. Write {step.__name__} without (…): the agent calls it"
    if isinstance(step, type) or not callable(step):
        return f"is {_shown(step)}. {_STEPS}"
    return None


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) > _SHOWN_LENGTH:
        text = text[: _SHOWN_LENGTH - 1] + "…"
    return f"{text} ({type(value).__name__})" if not isinstance(value, Mapping | str) else text
