"""What recording costs: CPU per message of one conductor with and without it.

A machine that is shared changes its speed within seconds, and two equal conductors differ by up to
a quarter for as long as they run, by the memory that they happen to get. So each is compared with
itself: a signal switches its recording on and off between slices of some milliseconds, A B B A. Two
slices without recording differ by up to 1 % in the median of a start. What recording costs depends
on the start, by some hundredths, so there are several.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from .client import Client, alarm, cpu_ns
from .measures import Load, open_sessions
from .subjects import AGENT, PROXY
from .switched import OFF, ON

__all__ = ["FLIGHT", "FULL", "SLICE", "in_turn", "recording_costs", "wait_idle"]

FLIGHT, FULL = "flight recorder", "--trace"
SLICE = 0.2
"""Scale of a load in a slice."""
_IDLE_NS = 100_000
"""CPU time in `_PAUSE` below which a conductor is idle: it has timers."""
_PAUSE = 0.01
_DELAY = 0.03
"""Seconds after which the thread of a trace has begun to write."""

T = TypeVar("T")


def in_turn(sides: Sequence[Callable[[], T]], rounds: int) -> list[list[T]]:
    """What each of two sides returns, called A B B A; that of the first round is left out."""
    found: list[list[T]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for index in (0, 1) if number % 2 else (1, 0):
            value = sides[index]()
            if number:
                found[index].append(value)
    return found


def recording_costs(
    switched: Sequence[str], kind: str, load: Load, *, proxies: int = 0, slices: int
) -> tuple[list[float], list[float]]:
    """CPU per message with and without a kind of recording, in microseconds, slice by slice.

    `switched` is the command of switched.py.
    """
    with tempfile.TemporaryDirectory() as directory:
        options = ["--trace", f"{directory}/trace.jsonl"] if kind == FULL else []
        chain = map(shlex.join, [*[PROXY] * proxies, AGENT])
        with Client([*switched, "agent", *options, *chain]) as client, alarm():
            sessions = open_sessions(client)
            sides = [partial(_cost, client, sessions, load, each) for each in (ON, OFF)]
            on, off = in_turn(sides, slices)
    return on, off


def _cost(client: Client, sessions: Sequence[str], load: Load, signal: int) -> float:
    """CPU per message of one slice, with what follows it: the thread of a trace works later."""
    os.kill(client.pid, signal)
    time.sleep(_PAUSE)
    before = cpu_ns(client.pid)
    numbers = load.drive(client, sessions, max(1, int(load.count * SLICE)))
    time.sleep(_DELAY)
    return (wait_idle(client.pid) - before) / numbers["messages"] / 1e3


def wait_idle(pid: int) -> int:
    """Wait until a process computes no more; returns its CPU time in nanoseconds."""
    last = cpu_ns(pid)
    while True:
        time.sleep(_PAUSE)
        now = cpu_ns(pid)
        if now - last < _IDLE_NS:
            return now
        last = now
