"""The tables, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .compare import Key, Results
from .measures import Measure

__all__ = ["number", "table", "tables"]

_UNITS = {"ms": ("start", "exit"), "MB": ("idle", "peak", "growth")}


def tables(results: Results, measures: Sequence[Measure]) -> str:
    """CPU per message; round trips and throughput; start and memory."""
    parts = [
        "CPU of the process in the middle, µs per message (× byte relay):",
        _table(results, [(m, "cpu") for m in measures if "cpu" in m.shown], ratios=True),
        "Round trip, p50 in µs, and messages per second, of everything on one CPU:",
        _table(
            results, [(m, name) for m in measures for name in ("p50", "rate") if name in m.shown]
        ),
        "Start and end in ms, memory of the process in the middle in MB:",
        _table(
            results,
            [
                (m, name)
                for m in measures
                for names in _UNITS.values()
                for name in names
                if name in m.shown
            ],
            units=True,
        ),
    ]
    text = "\n\n".join(part for part in parts if part)
    for what, why in results.problems.items():
        text += f"\n\n{what}: {why}"
    reordered = sorted(
        {
            key.label
            for key, rounds in results.rounds.items()
            if any("reordered" in r for r in rounds)
        }
    )
    if reordered:
        text += (
            f"\n\nUpdates, or the answer after them, came in another order: {', '.join(reordered)}"
        )
    ran = [each["ran"] for rounds in results.rounds.values() for each in rounds if "ran" in each]
    if ran and sum(ran) / len(ran) < 0.9:
        share = f"{sum(ran) / len(ran):.0%}"
        text += f"\n\nThe machine was busy: we had {share} of a CPU. Ratios hold, times do not."
    return text


def _table(
    results: Results,
    columns: Sequence[tuple[Measure, str]],
    *,
    ratios: bool = False,
    units: bool = False,
) -> str:
    if not columns:
        return ""
    heads = [name if units else measure.title for measure, name in columns]
    rows = []
    for subject, proxies in results.rows():
        cells = []
        for measure, name in columns:
            key = Key(subject, proxies, measure.name)
            cell = number(results.median(key, name))
            if ratios and (ratio := results.ratio(key, name)) is not None and ratio != 1:
                cell += f" (×{number(ratio)})"
            cells.append(cell)
        rows.append([Key(subject, proxies, "").label, *cells])
    return table(["", *heads], rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column is text, and the others numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return "-"
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"
