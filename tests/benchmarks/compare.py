"""Runs subjects in turn, A B C A B C, so that other load on the machine affects all of them."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

import attrs
import psutil

from .client import Failed
from .measures import Measure, Numbers
from .subjects import RELAY, Missing, Subject

__all__ = ["Results", "compare", "pin_to_one_cpu"]


@attrs.frozen(order=True)
class Key:
    """What was measured: a subject with so many proxies, by a measure."""

    subject: str
    proxies: int
    measure: str

    @property
    def label(self) -> str:
        if not self.proxies:
            return self.subject
        return f"{self.subject}, {self.proxies} {'proxy' if self.proxies == 1 else 'proxies'}"


@attrs.define
class Results:
    rounds: dict[Key, list[Numbers]] = attrs.field(factory=dict)
    problems: dict[str, str] = attrs.field(factory=dict)
    """What could not be measured, and why."""

    def median(self, key: Key, number: str) -> float | None:
        values = [each[number] for each in self.rounds.get(key, ()) if number in each]
        return statistics.median(values) if values else None

    def ratio(self, key: Key, number: str = "cpu") -> float | None:
        """Against the byte relay in the same run."""
        mine = self.median(key, number)
        relay = self.median(Key(RELAY, 0, key.measure), number)
        return None if mine is None or not relay else mine / relay

    def rows(self) -> list[tuple[str, int]]:
        """The subjects with their numbers of proxies, as they first came."""
        return list(dict.fromkeys((key.subject, key.proxies) for key in self.rounds))


def compare(
    subjects: Iterable[Subject],
    measures: Sequence[Measure],
    *,
    chains: Sequence[int] = (0, 1, 3),
    rounds: int = 5,
    scale: float = 1.0,
    progress: TextIO | None = sys.stderr,
) -> Results:
    results = Results()
    commands: list[tuple[Subject, int, list[str]]] = []
    for subject in subjects:
        try:
            found = [(subject, k, subject.command(k)) for k in subject.chains if k in chains]
        except Missing as exc:
            results.problems[subject.name] = str(exc)
        else:
            commands += found
    for number in range(rounds):
        for measure in measures:
            for subject, proxies, command in commands:
                key = Key(subject.name, proxies, measure.name)
                if progress is not None:
                    print(
                        f"\r\033[K{number + 1}/{rounds} {measure.title}: {key.label}",
                        end="",
                        file=progress,
                    )
                try:
                    numbers = measure(command, scale)
                except (Failed, OSError, ValueError) as exc:
                    results.problems[f"{key.label}: {measure.title}"] = str(exc)
                else:
                    results.rounds.setdefault(key, []).append(numbers)
    if progress is not None:
        print("\r\033[K", end="", file=progress)
    return results


def pin_to_one_cpu() -> None:
    """Pin this process and its children to the CPU with the lowest load.

    Two processes that wake each other cost several times as much on two CPUs as on one, and which
    it is depends on luck.
    """
    if sys.platform != "linux":
        return
    allowed = sorted(os.sched_getaffinity(0))
    busy = psutil.cpu_percent(interval=0.3, percpu=True)
    os.sched_setaffinity(0, {min(allowed, key=lambda cpu: busy[cpu])})
